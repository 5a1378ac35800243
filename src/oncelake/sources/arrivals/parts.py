"""The parts of large files: lines that begin in a range of bytes, or row groups. Found by the driver, from the head or footer of a file."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from oncelake.sources.arrivals.parsing.charset import is_utf8, marked_encoding
from oncelake.sources.arrivals.parsing.csv_dialect import dialect_of
from oncelake.sources.arrivals.parsing.csv_records import Scanner
from oncelake.sources.arrivals.parsing.options import option
from oncelake.sources.arrivals.parsing.records import FileFormat
from oncelake.storage.options import open_input

# Larger files are read in parts of about this size.
PART_BYTES = 16 << 20
# The names of the columns must be in so many bytes at the beginning of a CSV file.
_HEAD = 64 << 10
# A file that is read by a task on its own: compression hides where lines begin.
COMPRESSED = r"\.(gz|zst|zstd|bz2)$"

Entry = dict[str, Any]


class Footer(NamedTuple):
    """What the footer of a Parquet file says: the columns as Arrow reads them, and the rows and bytes of each row group."""

    schema: pa.Schema
    groups: tuple[tuple[int, int], ...]

    @property
    def rows(self) -> int:
        """The rows of the file."""
        return sum(rows for rows, _ in self.groups)


def is_large(files: pa.Table) -> pa.ChunkedArray:
    """Say of each file whether it is larger than a part."""
    return pc.greater(files["size"], PART_BYTES)


def read_footer(path: str) -> Footer | None:
    """Return the footer of a Parquet file; None if it cannot be read, or contradicts itself: then a task finds out why."""
    import pyarrow.parquet as pq

    try:
        with open_input(path, None) as stream, pq.ParquetFile(stream, coerce_int96_timestamp_unit="us") as file:
            metadata = file.metadata
            groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
            footer = Footer(file.schema_arrow, tuple((group.num_rows, group.total_byte_size) for group in groups))
            return footer if footer.rows == metadata.num_rows and footer.groups else None
    except Exception:  # noqa: BLE001  whatever a damaged file leads to
        return None


def parts_of_groups(entry: Entry, footer: Footer) -> Iterator[Entry]:
    """Yield the entries of a file that is read by its row groups: neighbours together, as far as they are small."""
    first, row, size, rows = 0, 0, 0, 0
    for number, (count, length) in enumerate(footer.groups):
        if number > first and size + length > PART_BYTES:
            yield {**entry, "length": size, "first": first, "groups": number - first, "row": row, "rows": rows}
            first, row, size, rows = number, row + rows, 0, 0
        size, rows = size + length, rows + count
    yield {**entry, "length": size, "first": first, "groups": len(footer.groups) - first, "row": row, "rows": rows}


def parts_of_lines(entry: Entry, file_format: FileFormat, columns: int) -> list[Entry]:
    """Return the entries of a file that is read by its lines; the file itself if its lines are not found in its bytes."""
    header = _header(entry, file_format, columns)
    if header is None:
        return [entry]
    size = entry["size"]
    parts: Iterator[Mapping[str, Any]] = (
        {"offset": offset, "length": min(PART_BYTES, size - offset)} for offset in range(0, size, PART_BYTES)
    )
    return [{**entry, **part, "header": header} for part in parts]


def _header(entry: Entry, file_format: FileFormat, columns: int) -> bytes | None:
    """Return the bytes before the first record, which every part needs; None if the file must be read as a whole."""
    if not is_utf8(option(file_format, "encoding") or option(file_format, "charset")):
        return None
    try:
        with open_input(entry["path"], None) as stream:
            head = bytes(stream.read(_HEAD))
    except OSError:
        return None
    if marked_encoding(head) is not None:
        return None
    return _csv_header(head, file_format, columns) if file_format.kind == "csv" else b""


def _csv_header(head: bytes, file_format: FileFormat, columns: int) -> bytes | None:
    try:
        dialect = dialect_of(file_format.options)
    except ValueError:
        return None
    if not dialect.header:
        return b"" if columns else None  # the first record says how many columns there are
    mark = len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0
    scanner = Scanner(head[mark:], dialect)
    first = next(scanner.records(len(head) - mark, None), None)
    if first is None or first.reason or scanner.position + mark >= len(head):
        return None
    return head[: mark + scanner.position]
