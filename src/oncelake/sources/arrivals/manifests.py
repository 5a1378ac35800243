"""Manifests: the frozen, numbered lists of files that batches read, and what became of those files.

Each is one parquet file that anybody can read. A manifest is written once, before anything is read: after a crash the same
files are read under the same number. The outcomes of a batch are written after its commit, and may be written again.
"""

from __future__ import annotations

import base64
import hashlib
import json
import posixpath
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from oncelake.errors import ManifestUnreadable
from oncelake.sources.arrivals.discovery import FILES
from oncelake.storage.object_store import is_object_store
from oncelake.storage.objects import create_file, remove_file, replace_file, storage
from oncelake.storage.options import object_store

OUTCOMES = pa.schema(
    [
        *FILES,
        pa.field("state", pa.string()),
        *(pa.field(f"rows_{each}", pa.int64()) for each in ("read", "written", "quarantined", "filtered")),
        pa.field("version", pa.int64()),
        pa.field("hash", pa.string()),
        pa.field("duplicate_of", pa.string()),
    ]
)
# The outcomes of files that a batch did not take in. They belong to a later batch, or are new: a retry has what could not be
# read, and a skipped copy is reopened when the content of its original is replaced.
CHANGED, GONE, RETRIED, REOPENED = "changed", "gone", "retried", "reopened"
LEFT = (CHANGED, GONE, RETRIED, REOPENED)
_MANIFESTS, _OUTCOMES = "manifests", "outcomes"
_NUMBERED = re.compile(r"(\d{8,})\.parquet")
_KNOWN = re.compile(r"known-(\d{8,})\.parquet")
_FACTS, _NUMBER, _TOKEN = b"oncelake.facts", b"oncelake.number", b"oncelake.token"
# Of the rows, and of the rest.
_DIGEST, _CHECK = b"oncelake.digest", b"oncelake.check"
# Paths share beginnings, and files are written at similar times.
_ENCODINGS = {"path": "DELTA_BYTE_ARRAY", "size": "DELTA_BINARY_PACKED", "modified": "DELTA_BINARY_PACKED"}
# So many files are read in parallel, and are in memory as bytes.
_AT_ONCE = 200
# So many values are joined at a time.
_DIGESTED = 65_536


@dataclass(frozen=True, eq=False)
class Manifest:
    """The files that one batch reads, with what was written beside them, and a digest of the files."""

    number: int
    files: pa.Table
    facts: Mapping[str, Any]
    digest: str


@dataclass(frozen=True)
class Manifests:
    """The manifests and outcomes of one pipeline, in a folder of its own."""

    folder: str

    @property
    def pipeline(self) -> str:
        """The name of the pipeline."""
        return unquote(posixpath.basename(self.folder.rstrip("/")))

    def numbers(self, after: int = -1) -> list[int]:
        """Return the numbers of the frozen manifests that are greater than a number, in order."""
        return self._numbers(_MANIFESTS, after)

    def recorded(self, after: int = -1) -> list[int]:
        """Return the numbers of the batches whose outcomes are recorded, of those greater than a number, in order."""
        return self._numbers(_OUTCOMES, after)

    def freeze(self, number: int, files: pa.Table, facts: Mapping[str, Any]) -> bool:
        """Write a manifest, durably; return False if that number is frozen already, by whomever."""
        files = conform(files, FILES)
        # The token tells two runners apart that freeze the same files.
        added = {_NUMBER: str(number).encode(), _FACTS: json.dumps(facts).encode(), _TOKEN: uuid.uuid4().hex.encode()}
        return create_file(self.folder, _name(_MANIFESTS, number), to_parquet(files, added))

    def remove(self, number: int) -> None:
        """Remove a manifest that cannot be read, before it is written again."""
        remove_file(self.folder, _name(_MANIFESTS, number))

    def is_readable(self, number: int) -> bool:
        """Return whether a manifest is there as it was written, and so is what became of its files, if that is recorded."""
        try:
            self.load(number)
            self.outcomes(number)
        except ManifestUnreadable:
            return False
        return True

    def load(self, number: int) -> Manifest:
        """Return a manifest; raise ManifestUnreadable if it is not as it was written."""
        return next(iter(self.load_all([number])))

    def load_all(self, numbers: Iterable[int]) -> Iterator[Manifest]:
        """Yield several manifests, read in parallel from an object store."""
        for number, table in self._tables(_MANIFESTS, numbers, FILES):
            found = table.schema.metadata
            files = table.replace_schema_metadata(None)
            yield Manifest(number, files, json.loads(found[_FACTS]), found[_DIGEST].decode())

    def record(self, number: int, outcomes: pa.Table) -> None:
        """Write what became of the files of a batch, in place of what was recorded before."""
        for known in known_numbers(self.folder):
            # A cache of known files that has the batch has its former outcomes.
            if known >= number:
                remove_file(self.folder, known_name(known))
        content = to_parquet(conform(outcomes, OUTCOMES), {_NUMBER: str(number).encode()})
        replace_file(self.folder, _name(_OUTCOMES, number), content)

    def outcomes(self, number: int) -> pa.Table | None:
        """Return what became of the files of a batch; None if that is not recorded."""
        if storage(self.folder).stamp(_name(_OUTCOMES, number)) is None:
            return None
        return next(iter(self.outcomes_of([number])))[1]

    def outcomes_of(self, numbers: Iterable[int]) -> Iterator[tuple[int, pa.Table]]:
        """Yield the numbers and outcomes of several batches, which are recorded; read in parallel from an object store."""
        for number, table in self._tables(_OUTCOMES, numbers, OUTCOMES):
            yield number, conform(table.replace_schema_metadata(None), OUTCOMES)

    def _numbers(self, kind: str, after: int) -> list[int]:
        names = (
            storage(self.folder).names(kind)
            if after < 0 or not is_object_store(self.folder)
            else self._names(kind, after)
        )
        found = (_NUMBERED.fullmatch(name) for name in names)
        return sorted(number for match in found if match and (number := int(match[1])) > after)

    def _names(self, kind: str, after: int) -> Iterator[str]:
        """Yield the names after a number: a store starts its listing there, and need not list years of batches."""
        from obstore.exceptions import BaseError

        try:
            for batch in object_store(self.folder).list(kind, offset=_name(kind, after)):
                yield from (posixpath.basename(found["path"]) for found in batch)
        except BaseError as error:
            raise OSError(str(error).splitlines()[0]) from error

    def _tables(self, kind: str, numbers: Iterable[int], schema: pa.Schema) -> Iterator[tuple[int, pa.Table]]:
        place, waiting = storage(self.folder), list(numbers)
        for start in range(0, len(waiting), _AT_ONCE):
            some = waiting[start : start + _AT_ONCE]
            contents = place.read_all(_name(kind, number) for number in some)
            for number, content in zip(some, contents, strict=True):
                yield number, self._parse(kind, number, content, schema)

    def _parse(self, kind: str, number: int, content: bytes | OSError, schema: pa.Schema) -> pa.Table:
        try:
            if isinstance(content, OSError):
                raise content
            found = from_parquet(content, schema)
            if found.schema.metadata.get(_NUMBER) != str(number).encode():
                raise ValueError("it is of another batch")
        except (ValueError, FileNotFoundError) as error:  # other errors of reading may pass
            path = posixpath.join(self.folder, _name(kind, number))
            raise ManifestUnreadable(path=path, problem=_problem(error), pipeline=self.pipeline) from error
        return found


def _problem(error: Exception) -> str:
    return "it does not exist" if isinstance(error, FileNotFoundError) else str(error).splitlines()[0]


def _name(kind: str, number: int) -> str:
    return f"{kind}/{number:08}.parquet"


def encode_files(table: pa.Table) -> str:
    """Return a table of files or outcomes as a compact text, for the facts of a commit."""
    return base64.b64encode(to_parquet(table, {})).decode()


def decode_files(text: str) -> pa.Table:
    """Return the table of a text of `encode_files`; raise ValueError if it is not one."""
    return from_parquet(base64.b64decode(text, validate=True), None).replace_schema_metadata(None)


def known_numbers(folder: str) -> list[int]:
    """Return up to which batches there are caches of known files, the newest first."""
    found = (_KNOWN.fullmatch(name) for name in storage(folder).names())
    return sorted((int(match[1]) for match in found if match), reverse=True)


def known_name(number: int) -> str:
    """Return the name of the cache of the files that are known up to a batch."""
    return f"known-{number:08}.parquet"


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with the columns of a schema; those that it lacks are null."""
    columns = {field.name: table[field.name] if field.name in table.column_names else None for field in schema}
    nulls = pa.nulls(table.num_rows)
    return pa.table({name: nulls if column is None else column for name, column in columns.items()}).cast(schema)


def to_parquet(table: pa.Table, metadata: Mapping[bytes, bytes]) -> bytes:
    """Return a table as a parquet file, with digests by which damage is noticed."""
    stream = pa.BufferOutputStream()
    encodings = {name: _ENCODINGS[name] for name in table.column_names if name in _ENCODINGS}
    # Only columns without an encoding of their own may have a dictionary.
    plain = [name for name in table.column_names if name not in _ENCODINGS]
    metadata = {**metadata, _DIGEST: digest(table).encode()}
    table = table.replace_schema_metadata({**metadata, _CHECK: _check(metadata)})
    pq.write_table(table, stream, compression="zstd", use_dictionary=plain, column_encoding=encodings or None)
    content: bytes = stream.getvalue().to_pybytes()
    return content


def from_parquet(content: bytes, schema: pa.Schema | None) -> pa.Table:
    """Return the table of a parquet file of ours, with its metadata; raise ValueError if it is damaged."""
    if not content:
        raise ValueError("it is empty")
    try:
        # Not read_table, which imports the whole of pyarrow.dataset.
        table = pq.ParquetFile(pa.BufferReader(content)).read(use_threads=len(content) > 1 << 20)
        found = dict(table.schema.metadata or {})
    except Exception as error:  # whatever damaged bytes lead to
        raise ValueError(f"it is not a whole parquet file ({type(error).__name__})") from error
    if schema is not None and table.schema.names != schema.names[: table.num_columns]:
        raise ValueError("it has other columns")
    if found.pop(_CHECK, None) != _check(found) or found.get(_DIGEST) != digest(table).encode():
        raise ValueError("it is not as it was written")
    return table.replace_schema_metadata(found)


def _check(metadata: Mapping[bytes, bytes]) -> bytes:
    lines = (b"%s=%s" % pair for pair in sorted(metadata.items()))
    return hashlib.sha256(b"\n".join(lines)).hexdigest()[:16].encode()


def digest(table: pa.Table) -> str:
    """Return a short text that differs if any value of a table of texts and integers differs."""
    whole = hashlib.sha256()
    for name in table.column_names:
        texts, numbers = hashlib.sha256(name.encode()), hashlib.sha256()
        for batch in table.select([name]).to_batches(max_chunksize=_DIGESTED):
            values = batch.column(0)
            if pa.types.is_string(values.type):
                everything = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), pc.fill_null(values, ""))
                texts.update(pc.binary_join(everything, "")[0].as_buffer())
                # The lengths tell where one text ends and the next begins.
                values = pc.binary_length(values)
            numbers.update(_raw(pc.fill_null(values.cast(pa.int64()), -1)))
        whole.update(texts.digest() + numbers.digest())
    return whole.hexdigest()[:16]


def _raw(numbers: pa.Array) -> pa.Buffer:
    return numbers.buffers()[1].slice(8 * numbers.offset, 8 * len(numbers)) if len(numbers) else b""
