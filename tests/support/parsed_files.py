"""What parsing made of a file, in a shape that tests can compare and search."""

import base64
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from oncelake.sources.arrivals.parsing.parse import parse
from oncelake.sources.arrivals.parsing.records import BAD, COUNTS, DRIFT, FILE, LINE, RESCUED, FileFormat, PackedFile


@dataclass(frozen=True)
class Outcome:
    """What became of one file."""

    rows: list[dict[str, Any]]
    bad: list[dict[str, Any]]
    read: int

    @property
    def is_bad_file(self) -> bool:
        """Return whether the file was given up as a whole."""
        return any(each[LINE] is None for each in self.bad)

    @property
    def rescued(self) -> list[dict[str, Any]]:
        """Return what was rescued, row by row, by column."""
        return [
            json.loads(row[RESCUED], parse_float=str, parse_int=str) for row in self.rows if row[RESCUED] is not None
        ]

    @property
    def reasons(self) -> list[str]:
        """Return why something is bad or rescued."""
        return [each["reason"] for each in self.bad] + [each["reason"] for row in self.rescued for each in row.values()]

    def holds(self, value: bytes | str) -> bool:
        """Return whether a value is in a row, in what was rescued of it, or in the bytes of a bad row."""
        raw = value.encode() if isinstance(value, str) else value
        if any(raw in (each["raw"] or b"") for each in self.bad):
            return True
        columns = [[cell for name, cell in row.items() if name not in (FILE, LINE, RESCUED)] for row in self.rows]
        rescued = [each["value"] for row in self.rescued for each in row.values()]
        return any(_is_in(value, each) for each in _leaves([columns, rescued]))


def _leaves(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from _leaves(each)
    elif value is not None:
        yield value


def _is_in(value: bytes | str, leaf: Any) -> bool:
    if isinstance(leaf, bytes):
        return leaf == (value if isinstance(value, bytes) else value.encode())
    if isinstance(value, bytes):
        return str(leaf) in (value.decode(errors="replace"), base64.b64encode(value).decode())
    return value in str(leaf)


def parse_files(files: Sequence[PackedFile], file_format: FileFormat, schema: pa.Schema) -> dict[int, Outcome]:
    """Parse a pack, check everything that holds for any pack, and return what became of each file."""
    parsed = parse(files, file_format, schema)
    assert parsed.bad.schema.equals(BAD)
    assert parsed.counts.schema.equals(COUNTS)
    assert parsed.drift.schema.equals(DRIFT)
    own = [(FILE, pa.int64()), (LINE, pa.int64()), (RESCUED, pa.string())]
    assert parsed.rows.schema.equals(pa.schema([*[(each.name, each.type) for each in schema], *own]))
    for table in (parsed.rows, parsed.bad, parsed.drift):
        table.validate(full=True)
    rows, bad = parsed.rows.to_pylist(), parsed.bad.to_pylist()
    counts = dict(zip(parsed.counts[FILE].to_pylist(), parsed.counts["read"].to_pylist(), strict=True))
    assert parsed.counts.num_rows == len(counts) == len(files)
    found = {file: Outcome([], [], counts[file]) for file in (each.index for each in files)}
    for row in rows:
        found[row[FILE]].rows.append(row)
    for row in bad:
        found[row[FILE]].bad.append(row)
    for outcome in found.values():
        _check(outcome)
    return found


def _check(outcome: Outcome) -> None:
    assert outcome.read == len(outcome.rows) + len(outcome.bad)
    assert all(each["reason"] for each in outcome.bad)
    if outcome.is_bad_file:
        assert (len(outcome.rows), len(outcome.bad)) == (0, 1)
        assert outcome.bad[0]["offset"] is None
        assert outcome.bad[0]["raw"] is None or len(outcome.bad[0]["raw"]) <= 200
    lines = Counter([each[LINE] for each in outcome.rows] + [each[LINE] for each in outcome.bad])
    assert not lines or max(lines.values()) == 1
    assert all(line is None or line > 0 for line in lines)
    for row in outcome.rescued:
        assert row
        assert all(set(each) == {"value", "reason"} and each["reason"] for each in row.values())
