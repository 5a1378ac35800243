"""Independent readers of damaged files: what must be found of every line and every value, by Python's own modules."""

import bz2
import csv
import io
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import fastavro
import pyarrow.parquet as pq
import zstandard
from pyarrow import orc

from oncelake.sources.arrivals.parsing.records import LINE, RESCUED
from support.parsed_files import Outcome


@dataclass(frozen=True)
class _Number:
    """A number as it is spelled."""

    text: str

    def __str__(self) -> str:
        return self.text


_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")
_BLANK = b" \t\r\n"


def expanded(name: str, content: bytes) -> bytes | None:
    """Return what a file expands to; None if it cannot be expanded."""
    try:
        if not content:
            return content
        if name.endswith(".gz"):
            return _members(content, lambda: zlib.decompressobj(31), padding=b"\0")
        if name.endswith(".bz2"):
            return _members(content, bz2.BZ2Decompressor)
        if name.endswith(".zst"):
            return _members(content, lambda: zstandard.ZstdDecompressor().decompressobj())
    except (zlib.error, OSError, ValueError, EOFError, zstandard.ZstdError):
        return None
    return content


def _members(content: bytes, new: Callable[[], Any], padding: bytes = b"") -> bytes | None:
    found = b""
    while content:
        stream = new()
        found += stream.decompress(content)
        if not stream.eof:
            return None
        content = stream.unused_data.lstrip(padding)
    return found


def check_lines(kind: str, content: bytes, outcome: Outcome) -> None:
    """Check that every line is in a row, with every value, or is bad with all its bytes."""
    if content.startswith(_MARKS):
        return  # another encoding, by accident: the counts have been checked
    mark = 3 if content.startswith(b"\xef\xbb\xbf") else 0
    lines = content[mark:].splitlines(keepends=True)
    expected = {number for number, line in enumerate(lines, 1) if kind == "text" or line.strip(_BLANK)}
    assert {each[LINE] for each in (*outcome.rows, *outcome.bad)} == expected
    for each in outcome.bad:
        assert each["raw"] == lines[each[LINE] - 1].rstrip(b"\r\n")
        assert content[each["offset"] :].startswith(each["raw"])
    for row in outcome.rows:
        line = lines[row[LINE] - 1].decode()
        if kind == "text":
            assert row["value"] == line.rstrip("\r\n")
        else:
            _check_values(_load(line), row)


def _load(text: str) -> Any:
    return json.loads(text, object_pairs_hook=_unique, parse_int=_Number, parse_float=_Number, parse_constant=str)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def check_records(content: bytes, outcome: Outcome) -> None:
    """Check that every line of a CSV file is in one record, and that this is a row with every value, or bad with all its bytes."""
    if content.startswith(_MARKS):
        return
    lines = content.removeprefix(b"\xef\xbb\xbf").splitlines(keepends=True)
    found = {each[LINE]: each for each in (*outcome.rows, *outcome.bad)}
    starts = [*sorted(found), len(lines) + 1]
    header = _record(lines[: starts[0] - 1])
    assert (header is None) == (not any(line.strip(b"\r\n") for line in lines))
    for start, end in pairwise(starts):
        span = lines[start - 1 : end - 1]
        each = found[start]
        if "raw" in each:
            assert each["raw"] == b"".join(span).rstrip(b"\r\n")
            assert content[each["offset"] :].startswith(each["raw"])
            continue
        fields = _record(span)
        assert header is not None
        assert fields is not None
        assert len(fields) == len(header)
        names = [name or f"_c{number}" for number, name in enumerate(header)]
        _check_values({name: text or None for name, text in zip(names, fields, strict=True)}, each)


def _record(lines: list[bytes]) -> list[str] | None:
    """Return the only record of some lines; None if there is none."""
    records = [each for each in csv.reader([line.decode() for line in lines]) if each]
    assert len(records) <= 1
    return records[0] if records else None


def _check_values(given: dict[str, Any], row: dict[str, Any]) -> None:
    """Check that every value is in its column, or was rescued as it is."""
    rescued = _load(row[RESCUED]) if row[RESCUED] is not None else {}
    own = [name for name in row if not name.startswith(("_once_", "_rescued"))]
    for name, value in given.items():
        kept = rescued.pop(name, None)
        if kept is not None:
            assert kept["value"] == value, (name, value, kept)
            continue
        if value is None:
            continue
        column = name if name in own else next((each for each in own if each.lower() == name.lower()), None)
        if column in rescued:  # by the name of the column
            assert rescued.pop(column)["value"] == value
            continue
        assert column is not None, (name, value)
        assert _is_same(value, row[column]), (name, value, row[column])
    assert not rescued


def _is_same(given: Any, held: Any) -> bool:
    if isinstance(held, bool) or isinstance(given, bool):
        return given is held or str(given).strip().lower() == str(held).lower()
    if isinstance(held, (int, Decimal)):
        return Decimal(str(given).strip()) == held
    if isinstance(held, float):
        return float(str(given)) == held
    if isinstance(held, datetime):
        meant = datetime.fromisoformat(str(given).strip())
        return (meant if meant.tzinfo else meant.replace(tzinfo=UTC)) == held
    if held is None or isinstance(held, date):  # null as the JSON in a field of CSV
        return given == "null" if held is None else held.isoformat() == str(given).strip()
    if isinstance(held, (list, dict)):
        given = _load(given) if isinstance(given, str) else given
        return _is_same_nested(given, held)
    # A column of strings has the JSON of what is no string.
    return bool(given == held) or (isinstance(given, _Number) and given.text == held) or _is_json_of(given, held)


def _is_json_of(given: Any, held: Any) -> bool:
    return isinstance(given, (dict, list)) and isinstance(held, str) and bool(_load(held) == given)


def _is_same_nested(given: Any, held: Any) -> bool:
    if isinstance(held, dict):
        fields = {name.lower(): value for name, value in held.items()}
        return all(
            _is_same_nested(value, fields.get(name.lower())) for name, value in given.items() if value is not None
        )
    if isinstance(held, list):
        return len(given) == len(held) and all(map(_is_same_nested, given, held))
    return given is held or _is_same(given, held)


def read_columnar(kind: str, content: bytes) -> list[dict[str, Any]] | None:
    """Return the rows of a columnar file; None if it cannot be read."""
    try:
        if kind == "avro":
            return list(fastavro.reader(io.BytesIO(content)))  # type: ignore[arg-type]
        file = io.BytesIO(content)
        table = orc.read_table(file) if kind == "orc" else pq.ParquetFile(file, page_checksum_verification=True).read()
        table.validate()
        return [
            dict(zip(table.column_names, row, strict=True)) for row in zip(*map(_values, table.columns), strict=True)
        ]
    except Exception:  # noqa: BLE001  whatever the library makes of it
        return None


def _values(column: Any) -> list[Any]:
    """Return values of Python; where it has none, for bad text, nanoseconds and far years, bytes and numbers."""
    for kind in (column.type, "binary", "int64"):
        try:
            return list(column.cast(kind).to_pylist())
        except (ValueError, NotImplementedError, OverflowError, LookupError):  # a zone that no one knows, too
            continue
    return [None] * len(column)


def check_columnar(rows: list[dict[str, Any]], outcome: Outcome) -> None:
    """Check that every value of every row is in its column, or was rescued."""
    assert outcome.read == len(rows)
    assert [row[LINE] for row in outcome.rows] == list(range(1, len(rows) + 1))
    for given, row in zip(rows, outcome.rows, strict=True):
        rescued = _load(row[RESCUED]) if row[RESCUED] is not None else {}
        held = {name.lower(): value for name, value in row.items()}
        for name, value in given.items():
            if value is not None and name not in rescued and name.lower() not in map(str.lower, rescued):
                found = held.get(name.lower())
                assert str(found) == str(value) or found == value or _is_alike(value, found), (name, value, found)


def _is_alike(value: Any, held: Any) -> bool:
    """Return whether one value is the other in another type: nothing but the type may have been changed."""
    if isinstance(held, datetime) and isinstance(value, datetime):
        return value.replace(tzinfo=value.tzinfo or UTC) == held
    if isinstance(held, dict) and isinstance(value, dict):
        fields = {name.lower(): each for name, each in held.items()}
        pairs = [(each, fields.get(name.lower())) for name, each in value.items() if each is not None]
        return all(str(each) == str(other) or _is_alike(each, other) for each, other in pairs)
    if isinstance(held, list) and isinstance(value, list):
        pairs = list(zip(value, held, strict=True))
        return all(str(each) == str(other) or _is_alike(each, other) for each, other in pairs)
    if isinstance(value, bytes):
        return value.decode(errors="replace") == held
    return isinstance(held, datetime) and isinstance(value, int)
