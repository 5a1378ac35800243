"""Text, a row for each line; and binary files, a row for each file."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from oncelake.sources.arrivals.parsing.charset import to_utf8
from oncelake.sources.arrivals.parsing.decompress import BadFile
from oncelake.sources.arrivals.parsing.json_records import RecordRows
from oncelake.sources.arrivals.parsing.long_records import MAX_RECORD_BYTES, why_too_long
from oncelake.sources.arrivals.parsing.options import option
from oncelake.sources.arrivals.parsing.records import FileFormat, PackedFile, Parsed


def parse_text(files: Sequence[PackedFile], fmt: FileFormat, schema: pa.Schema) -> Parsed:
    """Return the lines of files in the column `value`, without their line ends (LF, CR LF or CR). Blank lines are rows too."""
    rows = RecordRows(schema)
    for file in files:
        rows.builder.count(file.index)
        try:
            content, offset = to_utf8(file.content, option(fmt, "encoding"))
        except BadFile as error:
            rows.builder.add_bad_file(file.index, str(error), file.content)
            continue
        for number, line in enumerate(content.splitlines(keepends=True), 1):
            _add_line(rows, file.index, number, offset, line)
            offset += len(line)
    return rows.builder.build()


def parse_binary(files: Sequence[PackedFile], _: FileFormat, schema: pa.Schema) -> Parsed:
    """Return the bytes of each file in the column `content`. An empty file is a row without bytes."""
    rows = RecordRows(schema)
    for file in files:
        if len(file.content) > MAX_RECORD_BYTES:
            rows.builder.add_bad_file(file.index, why_too_long(len(file.content)), file.content)
        else:
            rows.add(file.index, 1, {"content": file.content})
    return rows.builder.build()


def _add_line(rows: RecordRows, file: int, number: int, offset: int, line: bytes) -> None:
    line = line.rstrip(b"\n").removesuffix(b"\r") if line.endswith(b"\n") else line.removesuffix(b"\r")
    if len(line) > MAX_RECORD_BYTES:
        rows.builder.add_bad(file, number, offset, line, "")
        return
    try:
        rows.add(file, number, {"value": line.decode()})
    except UnicodeDecodeError as error:
        reason = f"not valid UTF-8 at byte {error.start + 1}: {error.reason}"
        rows.builder.add_bad(file, number, offset, line, reason)
