"""Fingerprint a table's content: equal for equal content, whatever the order of rows, files and columns.

The content is a bag (multiset) of rows. A row's text (see `oncelake.spark.row_encoding`) is hashed with SHA-256; two
64-bit numbers of the digest are summed exactly over all rows. Two different bags have the same sums with a probability of
at most 2^-128 (SHA-256 taken as a random function), whether rows are duplicated, missing or changed. The quick mode sums
two salted xxhash64 instead: it has no such bound, but costs little more than a scan of the table.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from oncelake.delta.log import read_log
from oncelake.delta.writes import table_at
from oncelake.errors import UsageError
from oncelake.errors.base import did_you_mean
from oncelake.spark.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField

# A bound on the driver's memory; nobody reads more groups than this either.
MAX_PARTS = 10_000
# A 64-bit number is summed in three pieces: a sum of longs is then exact up to 2^41 rows, at the cost of a plain sum.
_SHIFTS, _BITS = (42, 21, 0), 21
_JSON = {
    "timeZone": "UTC",
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


class RowSums(NamedTuple):
    """The content of a bag of rows: the number of rows, and the two sums over them."""

    rows: int
    sums: tuple[int, int]

    def merge(self, other: RowSums) -> RowSums:
        """Return the sums of both bags together."""
        return RowSums(self.rows + other.rows, (self.sums[0] + other.sums[0], self.sums[1] + other.sums[1]))


_NO_ROWS = RowSums(0, (0, 0))


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """The fingerprint of a table: its columns, its row count and two sums. Parts only locate a difference."""

    schema: str
    rows: int
    sums: tuple[int, int]
    excluded: tuple[str, ...] = ()
    quick: bool = False
    parts: Mapping[str, RowSums] = field(default_factory=dict, repr=False)

    @property
    def text(self) -> str:
        """Return a short form to print and to store, which depends on the content alone."""
        content = [self.schema, self.rows, [f"{number:x}" for number in self.sums], list(self.excluded)]
        digest = hashlib.sha256(json.dumps(content, ensure_ascii=True).encode()).hexdigest()
        return f"{'once1q' if self.quick else 'once1'}:{self.rows}:{digest[:32]}"

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        """Return whether the content is the same; raise UsageError for a strict and a quick fingerprint."""
        if not isinstance(other, Fingerprint):
            return NotImplemented
        self._refuse_other_mode(other)
        return self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def differing(self, other: Fingerprint) -> list[str]:
        """Return the sorted groups whose rows differ, including groups that only one of the two has."""
        self._refuse_other_mode(other)
        names = sorted({*self.parts, *other.parts})
        return [name for name in names if self.parts.get(name) != other.parts.get(name)]

    def document(self) -> dict[str, Any]:
        """Return the fingerprint as JSON values; sums are text, because they exceed JSON numbers."""
        return {
            "fingerprint": self.text,
            "rows": self.rows,
            "sums": [f"{number:x}" for number in self.sums],
            "schema": self.schema,
            "excluded": list(self.excluded),
            "quick": self.quick,
            "parts": {
                name: {"rows": part.rows, "sums": [f"{number:x}" for number in part.sums]}
                for name, part in sorted(self.parts.items())
            },
        }

    def _content(self) -> tuple[Any, ...]:
        return (self.schema, self.rows, self.sums, self.excluded, self.quick)

    def _refuse_other_mode(self, other: Fingerprint) -> None:
        if self.quick != other.quick:
            raise UsageError(
                message="a strict and a quick fingerprint cannot be compared; compute both in the same mode"
            )


class _Side(NamedTuple):
    """One of two frames that are compared, and its compared columns."""

    name: str
    frame: DataFrame
    content: list[StructField]

    def digests(self) -> DataFrame:
        """Return the digest of every row, beside the row."""
        from pyspark.sql import functions as F

        from oncelake.spark.row_encoding import row_text

        row = F.struct(*[F.col(identifier(f.name)) for f in self.content])
        return self.frame.select(F.sha2(row_text(self.content), 256).alias("digest"), row.alias("row"))


@dataclass(frozen=True)
class Example:
    """A row that one side has more often, and its count on each side."""

    row: Mapping[str, Any]
    left: int
    right: int

    def __str__(self) -> str:
        row = ", ".join(f"{key}={value}" for key, value in self.row.items())
        return f"({row}) {self.left} × instead of {self.right} ×"


@dataclass(frozen=True)
class Differences:
    """The differences of two tables: of their columns or, if those are the same, of their rows with multiplicity."""

    columns: tuple[str, ...]
    only_left: int | None
    only_right: int | None
    examples: tuple[Example, ...]
    excluded: tuple[str, ...]

    def __bool__(self) -> bool:
        """Return whether there are differences."""
        return bool(self.columns or self.only_left or self.only_right)

    @property
    def summary(self) -> str:
        """Return how many rows of the left table are too many, and how many are missing."""
        counts = ((self.only_left, "too many"), (self.only_right, "missing"))
        return " and ".join(f"{number:,} row{'s' * (number != 1)} {what}" for number, what in counts if number)

    def document(self) -> dict[str, Any]:
        """Return the differences as JSON values."""
        return asdict(self)


def fingerprint(
    frame: DataFrame, *, exclude: Iterable[str] = (), by: Iterable[str] = (), quick: bool = False
) -> Fingerprint:
    """Return the fingerprint of a frame, in one aggregation; with a part per group of `by`, up to 10,000 groups."""
    excluded, groups = _resolve(frame.columns, exclude, "exclude"), _resolve(frame.columns, by, "by")
    content = _compared_columns(frame, excluded)
    found = _parts(frame, content, groups, quick)
    if len(found) > MAX_PARTS:
        # Too many groups: compute the same content once more without groups.
        groups, found = (), _parts(frame, content, (), quick)
    parts: dict[str, RowSums] = {}
    for name, part in found:
        # Different values may have the same printed form.
        parts[name] = part.merge(parts.get(name, _NO_ROWS))
    whole = reduce(RowSums.merge, parts.values(), _NO_ROWS)
    return Fingerprint(
        schema=_schema(content),
        rows=whole.rows,
        sums=whole.sums,
        excluded=excluded,
        quick=quick,
        parts=parts if groups else {},
    )


def fingerprint_table(
    session: SparkSession, path: str, *, version: int | None = None, exclude: Iterable[str] = (), quick: bool = False
) -> Fingerprint:
    """Return the fingerprint of a Delta table at one version (default: the newest), with a part per partition."""
    log = read_log(path, path)
    frame = table_at(session, path, log.version if version is None else version)
    # At an older version a partition column may not exist.
    by = [column for column in log.partitioned_by if column in frame.columns]
    return fingerprint(frame, exclude=exclude, by=by, quick=quick)


def differences(left: DataFrame, right: DataFrame, *, exclude: Iterable[str] = (), limit: int = 5) -> Differences:
    """Return how two frames differ: exact counts, and up to `limit` example rows per side, sorted by content.

    Rows are counted by their digest, so maps and variants are allowed. The frames are read a second time for the
    examples, only if there are any.
    """
    excluded = _resolve(list(dict.fromkeys([*left.columns, *right.columns])), exclude, "exclude")
    sides = [
        _Side(name, frame, _compared_columns(frame, excluded)) for name, frame in (("left", left), ("right", right))
    ]
    columns = _column_differences(*(side.content for side in sides))
    if columns:
        return Differences(columns, None, None, (), excluded)
    surplus = _surplus_digests(sides)
    found: dict[str, int] = dict(map(tuple, surplus.groupBy("side").agg({"surplus": "sum"}).collect()))
    examples = [example for side in sides if side.name in found for example in _examples(side, surplus, limit)]
    return Differences((), found.get("left", 0), found.get("right", 0), tuple(examples), excluded)


def _column_differences(left: list[StructField], right: list[StructField]) -> tuple[str, ...]:
    from oncelake.spark.row_encoding import type_text

    one, other = ({f.name: type_text(f.dataType) for f in fields} for fields in (left, right))
    found = []
    for name in sorted({*one, *other}):
        if name not in other:
            found.append(f"{name} ({one[name]}) is only in left")
        elif name not in one:
            found.append(f"{name} ({other[name]}) is only in right")
        elif one[name] != other[name]:
            found.append(f"{name} is {one[name]} in left, {other[name]} in right")
    return tuple(found)


def _surplus_digests(sides: list[_Side]) -> DataFrame:
    """Return the digests that one side has more often, with both counts, that side, and the surplus."""
    from pyspark.sql import functions as F

    one, other = (
        side.digests().select("digest", F.lit(sign).alias("sign")) for side, sign in zip(sides, (1, -1), strict=True)
    )
    counted = (
        one.unionAll(other)
        .groupBy("digest")
        .agg(F.count_if(F.col("sign") > 0).alias("left"), F.count_if(F.col("sign") < 0).alias("right"))
    )
    surplus = F.col("left") - F.col("right")
    more = F.when(surplus > 0, "left").otherwise("right")
    return counted.where(surplus != 0).select("*", more.alias("side"), F.abs(surplus).alias("surplus"))


def _examples(side: _Side, surplus: DataFrame, limit: int) -> list[Example]:
    """Return rows that this side has more often, sorted by their sortable columns."""
    from pyspark.sql import functions as F

    from oncelake.spark.row_encoding import has_order

    digests = surplus.where(F.col("side") == side.name).select("digest", "left", "right")
    rows = side.digests().join(digests, "digest").dropDuplicates(["digest"])
    order = [F.col("row").getField(f.name) for f in side.content if has_order(f.dataType)]
    first = rows.orderBy(*order, "digest").limit(limit).select(F.to_json("row", _JSON), "left", "right")
    return [Example(json.loads(text, parse_float=_parse_number), left, right) for text, left, right in first.collect()]


def _parse_number(text: str) -> float | str:
    """Return a JSON number as float, or its text if a float would lose digits."""
    return float(text) if Decimal(repr(float(text))) == Decimal(text) else text


def _resolve(columns: list[str], names: Iterable[str], what: str) -> tuple[str, ...]:
    """Return the named columns in the table's spelling, sorted; raise UsageError for an unknown name."""
    if isinstance(names, str):
        raise UsageError(message=f"{what}={names!r} is a string; pass a list of columns: {what}=[{names!r}]")
    existing = {column.casefold(): column for column in columns}
    found = set()
    for name in names:
        if name.casefold() not in existing:
            near = did_you_mean(name, columns)
            raise UsageError(
                message=f"{what}: there is no column {name!r}{near}; the columns are: {', '.join(columns)}"
            )
        found.add(name if name in columns else existing[name.casefold()])
    return tuple(sorted(found))


def _compared_columns(frame: DataFrame, excluded: tuple[str, ...]) -> list[StructField]:
    """Return the columns that are not excluded, sorted by name, because column order is not content."""
    from oncelake.spark.row_encoding import require_supported

    fields = sorted((f for f in frame.schema.fields if f.name not in excluded), key=lambda f: f.name)
    for one, other in pairwise(fields):
        if one.name == other.name:
            raise UsageError(message=f"two columns are named {one.name!r}; a fingerprint needs unique column names")
    for each in fields:
        require_supported(each.dataType, each.name)
    return fields


def _schema(fields: list[StructField]) -> str:
    """Return the names and types of the columns as text."""
    from oncelake.spark.row_encoding import type_text

    return ", ".join(f"{identifier(f.name)} {type_text(f.dataType)}" for f in fields)


def _parts(frame: DataFrame, content: list[StructField], by: tuple[str, ...], quick: bool) -> list[tuple[str, RowSums]]:
    """Return the sums of each group by its text; without groups, one with an empty name."""
    from pyspark.sql import functions as F

    keys = [_group_column(frame, name).alias(f"by{number}") for number, name in enumerate(by)]
    names = [f"by{number}" for number in range(len(by))]
    sums = [F.sum(piece) for lane in ("a", "b") for piece in _thirds(F.col(lane))]
    counted = _lanes(frame, content, keys, quick).groupBy(*names).agg(F.count(F.lit(1)), *sums)
    if not by:
        return [("", _combine(list(counted.collect()[0])))]
    group = F.struct(*[F.col(alias).alias(name) for alias, name in zip(names, by, strict=True)])
    found = counted.select(F.to_json(group, _JSON), *counted.columns[len(by) :]).limit(MAX_PARTS + 1).collect()
    return [(row[0], _combine(list(row)[1:])) for row in found]


def _combine(numbers: list[int | None]) -> RowSums:
    """Combine the sums of the pieces: the row count, then three pieces for each of the two sums."""
    rows, *sums = (number or 0 for number in numbers)
    first, second = (
        sum(value << shift for value, shift in zip(three, _SHIFTS, strict=True)) for three in (sums[:3], sums[3:])
    )
    return RowSums(rows, (first, second))


def _lanes(frame: DataFrame, content: list[StructField], keys: list[Column], quick: bool) -> DataFrame:
    """Return the two numbers of every row, as `a` and `b`, beside the keys."""
    from pyspark.sql import functions as F

    from oncelake.spark.row_encoding import row_hashes, row_text

    if quick:
        one, other = row_hashes(content, salts=(1, 2))
        return frame.select(*keys, one.alias("a"), other.alias("b"))
    digests = frame.select(*keys, F.unhex(F.sha2(row_text(content), 256)).alias("digest"))
    # SQL has no other conversion of bytes to a number. On eight bytes xxhash64 is a bijection, so no bits are lost.
    one, other = (F.xxhash64(F.substring("digest", start, 8)) for start in (1, 9))
    return digests.select(*digests.columns[:-1], one.alias("a"), other.alias("b"))


def _thirds(lane: Column) -> list[Column]:
    """Split a 64-bit number into three pieces; the uppermost has the remaining 22 bits."""
    from pyspark.sql import functions as F

    top, *low = _SHIFTS
    mask = F.lit((1 << _BITS) - 1)
    return [
        F.shiftrightunsigned(lane, top),
        *(F.shiftrightunsigned(lane, shift).bitwiseAND(mask) for shift in low),
    ]


def _group_column(frame: DataFrame, name: str) -> Column:
    """Return a column to group by; text by its bytes, because a collation may treat different texts as equal."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    kind = frame.schema[name].dataType
    if isinstance(kind, T.ArrayType | T.MapType | T.StructType | T.VariantType):
        raise UsageError(message=f"by: column {name} cannot name a group: it has type {kind.simpleString()}")
    column = F.col(identifier(name))
    return column.cast("string") if isinstance(kind, T.StringType) else column
