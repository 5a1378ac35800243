"""Read ORC files in a process of their own: on a damaged file the library of ORC may end the process that it runs in.

It does so by an assertion (a decimal of more than 38 digits) or by reading memory that is not its own. On an executor that
would fail the task, and with it the batch, for a file that must only be refused. The process is kept for further files.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from contextlib import suppress
from threading import Lock
from typing import IO, Any

import pyarrow as pa

from oncelake.sources.arrivals.parsing.decompress import BadFile, check_size

_REQUEST, _ANSWER = struct.Struct("<QQ"), struct.Struct("<?Q")
_START = f"from {__name__} import serve; serve()"


def read_orc_table(content: bytes, limit: int) -> pa.Table:
    """Return the rows of an ORC file. Raise `BadFile` if it cannot be read, or expands to more than `limit` bytes."""
    return _reader.read(content, limit)


class _Reader:
    """The process that reads, started when it is needed. It ends with this one, which closes its input."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._parent = 0

    def read(self, content: bytes, limit: int) -> pa.Table:
        with self._lock:
            process = self._started()
            try:
                answer = _ask(process, content, limit)
            except (OSError, EOFError):
                self._process = None
                raise BadFile(_crash(process)) from None
        return pa.ipc.open_stream(answer).read_all()

    def _started(self) -> subprocess.Popen[bytes]:
        # A fork of the process that started it must not talk to it as well.
        if self._process is None or self._parent != os.getpid():
            environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
            self._process = subprocess.Popen(  # noqa: S603  our own module
                [sys.executable, "-P", "-c", _START],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
            )
            self._parent = os.getpid()
        return self._process


def _ask(process: subprocess.Popen[bytes], content: bytes, limit: int) -> bytes:
    """Return the table that the process reads, as a stream of Arrow. Raise OSError or EOFError if it has ended."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(_REQUEST.pack(len(content), limit))
    process.stdin.write(content)
    process.stdin.flush()
    is_table, length = _ANSWER.unpack(_receive(process.stdout, _ANSWER.size))
    answer = _receive(process.stdout, length)
    if not is_table:
        raise BadFile(answer.decode())
    return answer


def _receive(stream: IO[bytes], length: int) -> bytes:
    answer = stream.read(length)
    if len(answer) < length:
        raise EOFError("the process has ended")
    return answer


def _crash(process: subprocess.Popen[bytes]) -> str:
    for stream in (process.stdin, process.stdout):
        with suppress(OSError):
            if stream is not None:
                stream.close()
    return f"not valid orc: the library that reads ORC crashed on it (exit code {process.wait()})"


def serve() -> None:
    """Read files from the input and write tables, or the reasons why there are none, to the output, until the input ends."""
    source, target = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the library prints
    while header := source.read(_REQUEST.size):
        length, limit = _REQUEST.unpack(header)
        content = source.read(length)
        try:
            is_table, answer = True, _stream(_read(content, limit))
        except BadFile as error:
            is_table, answer = False, str(error).encode()
        except Exception as error:  # noqa: BLE001  whatever it is, it is about this file
            is_table, answer = False, f"not valid orc: {error or type(error).__name__}".encode(errors="replace")
        target.write(_ANSWER.pack(is_table, len(answer)))
        target.write(answer)
        target.flush()


def _stream(table: pa.Table) -> bytes:
    target = pa.BufferOutputStream()
    with pa.ipc.new_stream(target, table.schema) as writer:
        writer.write_table(table)
    return bytes(target.getvalue())


def _read(content: bytes, limit: int) -> pa.Table:
    from pyarrow import orc

    file = orc.ORCFile(pa.BufferReader(content))
    # Encodings make a million equal values a few bytes: a table needs at least a byte for each.
    check_size(file.nrows * len(file.schema), limit)
    stripes: list[pa.RecordBatch] = []
    for number in range(file.nstripes):
        stripes.append(_read_stripe(file, number))
        check_size(sum(stripe.nbytes for stripe in stripes), limit)
    table = pa.Table.from_batches(stripes, file.schema)
    if table.num_rows != file.nrows:
        raise BadFile(f"the file has {table.num_rows} rows, and says that it has {file.nrows}")
    return table


def _read_stripe(file: Any, number: int) -> pa.RecordBatch:
    try:
        return file.read_stripe(number)
    except pa.ArrowInvalid as error:
        if "out of range for nanosecond" in str(error):
            reason = "a timestamp before 1677 or after 2262, which Arrow's reader of ORC cannot hold"
            raise BadFile(f"{reason}: {error}") from None
        raise


_reader = _Reader()
