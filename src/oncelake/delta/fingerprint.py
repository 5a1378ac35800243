"""What a table holds, as one short text: equal for equal content, whatever the order of rows, files and columns.

The content is a bag of rows. A row's text (see `encoding`) is hashed with SHA-256; two 64-bit numbers of the digest are
summed over all rows, exactly. Two different bags have the same sums with a probability of at most 2^-128 (SHA-256 taken
as a random function), whatever is doubled, missing or changed. The quick mode sums two salted xxhash64 instead: no such
bound, but hardly dearer than reading the table.
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

# A driver's memory is no place for more; nobody reads more either.
MOST_PARTS = 10_000
# A 64-bit number is summed in three, so that a sum of longs is exact for up to 2^41 rows and no dearer than a plain one.
_SHIFTS, _BITS = (42, 21, 0), 21
_JSON = {
    "timeZone": "UTC",
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


class Part(NamedTuple):
    """A bag of rows: how many, and the two sums."""

    rows: int
    sums: tuple[int, int]

    def merged(self, other: Part) -> Part:
        """Both bags together."""
        return Part(self.rows + other.rows, (self.sums[0] + other.sums[0], self.sums[1] + other.sums[1]))


_NOTHING = Part(0, (0, 0))


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """The content of a table: its columns, its rows, and two sums over them; parts only say where a difference is."""

    schema: str
    rows: int
    sums: tuple[int, int]
    excluded: tuple[str, ...] = ()
    quick: bool = False
    parts: Mapping[str, Part] = field(default_factory=dict, repr=False)

    @property
    def text(self) -> str:
        """A short form to print and to keep: the same for the same content, today and elsewhere."""
        content = [self.schema, self.rows, [f"{number:x}" for number in self.sums], list(self.excluded)]
        digest = hashlib.sha256(json.dumps(content, ensure_ascii=True).encode()).hexdigest()
        return f"{'once1q' if self.quick else 'once1'}:{self.rows}:{digest[:32]}"

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        """Whether the content is the same; asking that of a strict and a quick one is a mistake."""
        if not isinstance(other, Fingerprint):
            return NotImplemented
        self._refuse_other_mode(other)
        return self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def differing(self, other: Fingerprint) -> list[str]:
        """The groups whose rows are not the same, sorted; a group that only one of them has is one of these."""
        self._refuse_other_mode(other)
        names = sorted({*self.parts, *other.parts})
        return [name for name in names if self.parts.get(name) != other.parts.get(name)]

    def document(self) -> dict[str, Any]:
        """The fingerprint as JSON values; sums as text, because they do not fit a number there."""
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
            raise UsageError(message="a strict and a quick fingerprint cannot be compared; take both in the same mode")


class _Side(NamedTuple):
    """One of two frames that are compared, and the columns that count."""

    name: str
    frame: DataFrame
    content: list[StructField]

    def digests(self) -> DataFrame:
        """The digest of every row, beside the row."""
        from pyspark.sql import functions as F

        from oncelake.spark.row_encoding import row_text

        row = F.struct(*[F.col(identifier(f.name)) for f in self.content])
        return self.frame.select(F.sha2(row_text(self.content), 256).alias("digest"), row.alias("row"))


@dataclass(frozen=True)
class Example:
    """A row that one side has more often, and how often each has it."""

    row: Mapping[str, Any]
    left: int
    right: int

    def __str__(self) -> str:
        row = ", ".join(f"{key}={value}" for key, value in self.row.items())
        return f"({row}) {self.left} × instead of {self.right} ×"


@dataclass(frozen=True)
class Differences:
    """What tells two tables apart: their columns or, where these are the same, their rows, a row as often as it is there."""

    columns: tuple[str, ...]
    only_left: int | None
    only_right: int | None
    examples: tuple[Example, ...]
    excluded: tuple[str, ...]

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.columns or self.only_left or self.only_right)

    @property
    def told(self) -> str:
        """How many rows the left one has too many, and how many are missing there."""
        counts = ((self.only_left, "too many"), (self.only_right, "missing"))
        return " and ".join(f"{number:,} row{'s' * (number != 1)} {what}" for number, what in counts if number)

    def document(self) -> dict[str, Any]:
        """The differences as JSON values."""
        return asdict(self)


def fingerprint(
    frame: DataFrame, *, exclude: Iterable[str] = (), by: Iterable[str] = (), quick: bool = False
) -> Fingerprint:
    """The fingerprint of a frame, in one aggregation; with a part per group of `by`, up to 10,000 groups."""
    excluded, groups = _named(frame.columns, exclude, "exclude"), _named(frame.columns, by, "by")
    content = _content(frame, excluded)
    found = _parts(frame, content, groups, quick)
    if len(found) > MOST_PARTS:
        # Too many to be told apart: the same content, read once more without them.
        groups, found = (), _parts(frame, content, (), quick)
    parts: dict[str, Part] = {}
    for name, part in found:
        # Values that are no text, or nearly the same, may share a printed form.
        parts[name] = part.merged(parts.get(name, _NOTHING))
    whole = reduce(Part.merged, parts.values(), _NOTHING)
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
    """The fingerprint of a Delta table at one version, the newest unless told, with a part per partition."""
    log = read_log(path, path)
    frame = table_at(session, path, log.version if version is None else version)
    # An older version may have been partitioned by something that is no longer there, or not yet.
    by = [column for column in log.partitioned_by if column in frame.columns]
    return fingerprint(frame, exclude=exclude, by=by, quick=quick)


def differences(left: DataFrame, right: DataFrame, *, exclude: Iterable[str] = (), limit: int = 5) -> Differences:
    """How two frames differ: exact counts, and up to `limit` example rows for each side, in the order of their content.

    Rows are counted by their digest, so maps and variants are no obstacle. The frames are read a second time for the
    examples, and only when there are any.
    """
    excluded = _named(list(dict.fromkeys([*left.columns, *right.columns])), exclude, "exclude")
    sides = [_Side(name, frame, _content(frame, excluded)) for name, frame in (("left", left), ("right", right))]
    columns = _other_columns(*(side.content for side in sides))
    if columns:
        return Differences(columns, None, None, (), excluded)
    uneven = _uneven(sides)
    found: dict[str, int] = dict(map(tuple, uneven.groupBy("side").agg({"surplus": "sum"}).collect()))
    examples = [example for side in sides if side.name in found for example in _examples(side, uneven, limit)]
    return Differences((), found.get("left", 0), found.get("right", 0), tuple(examples), excluded)


def _other_columns(left: list[StructField], right: list[StructField]) -> tuple[str, ...]:
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


def _uneven(sides: list[_Side]) -> DataFrame:
    """The digests that one side has more often: how often each has them, which has more, and by how many."""
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


def _examples(side: _Side, uneven: DataFrame, limit: int) -> list[Example]:
    """Rows that this side has more often, sorted by what of them can be sorted."""
    from pyspark.sql import functions as F

    from oncelake.spark.row_encoding import has_order

    mine = uneven.where(F.col("side") == side.name).select("digest", "left", "right")
    rows = side.digests().join(mine, "digest").dropDuplicates(["digest"])
    order = [F.col("row").getField(f.name) for f in side.content if has_order(f.dataType)]
    shown = rows.orderBy(*order, "digest").limit(limit).select(F.to_json("row", _JSON), "left", "right")
    return [Example(json.loads(text, parse_float=_number), left, right) for text, left, right in shown.collect()]


def _number(text: str) -> float | str:
    """A number as JSON has it, or its text where a float would lose digits."""
    return float(text) if Decimal(repr(float(text))) == Decimal(text) else text


def _named(columns: list[str], names: Iterable[str], what: str) -> tuple[str, ...]:
    """The named columns as the table spells them, sorted; a name it does not have is an error."""
    if isinstance(names, str):
        raise UsageError(message=f"{what}={names!r} is one text; give a list of columns: {what}=[{names!r}]")
    there = {column.casefold(): column for column in columns}
    found = set()
    for name in names:
        if name.casefold() not in there:
            near = did_you_mean(name, columns)
            raise UsageError(message=f"{what}: there is no column {name!r}{near}; there are: {', '.join(columns)}")
        found.add(name if name in columns else there[name.casefold()])
    return tuple(sorted(found))


def _content(frame: DataFrame, excluded: tuple[str, ...]) -> list[StructField]:
    """The columns that count, sorted by name: their order in the table means nothing."""
    from oncelake.spark.row_encoding import refuse_unknown

    fields = sorted((f for f in frame.schema.fields if f.name not in excluded), key=lambda f: f.name)
    for one, other in pairwise(fields):
        if one.name == other.name:
            raise UsageError(
                message=f"two columns are named {one.name!r}; a fingerprint needs names that tell them apart"
            )
    for each in fields:
        refuse_unknown(each.dataType, each.name)
    return fields


def _schema(fields: list[StructField]) -> str:
    """Names and types of the columns that count."""
    from oncelake.spark.row_encoding import type_text

    return ", ".join(f"{identifier(f.name)} {type_text(f.dataType)}" for f in fields)


def _parts(frame: DataFrame, content: list[StructField], by: tuple[str, ...], quick: bool) -> list[tuple[str, Part]]:
    """The parts of a frame and the texts of their groups; one, without a name, where nothing is grouped."""
    from pyspark.sql import functions as F

    keys = [_key(frame, name).alias(f"by{number}") for number, name in enumerate(by)]
    names = [f"by{number}" for number in range(len(by))]
    sums = [F.sum(piece) for lane in ("a", "b") for piece in _thirds(F.col(lane))]
    counted = _lanes(frame, content, keys, quick).groupBy(*names).agg(F.count(F.lit(1)), *sums)
    if not by:
        return [("", _part(list(counted.collect()[0])))]
    group = F.struct(*[F.col(own).alias(name) for own, name in zip(names, by, strict=True)])
    found = counted.select(F.to_json(group, _JSON), *counted.columns[len(by) :]).limit(MOST_PARTS + 1).collect()
    return [(row[0], _part(list(row)[1:])) for row in found]


def _part(numbers: list[int | None]) -> Part:
    rows, *sums = (number or 0 for number in numbers)
    first, second = (
        sum(value << shift for value, shift in zip(three, _SHIFTS, strict=True)) for three in (sums[:3], sums[3:])
    )
    return Part(rows, (first, second))


def _lanes(frame: DataFrame, content: list[StructField], keys: list[Column], quick: bool) -> DataFrame:
    """The two numbers of every row, as `a` and `b`, beside the keys."""
    from pyspark.sql import functions as F

    from oncelake.spark.row_encoding import row_hashes, row_text

    if quick:
        one, other = row_hashes(content, salts=(1, 2))
        return frame.select(*keys, one.alias("a"), other.alias("b"))
    digests = frame.select(*keys, F.unhex(F.sha2(row_text(content), 256)).alias("digest"))
    # SQL has no bytes to number but this: of eight bytes xxhash64 is a bijection, so nothing of the digest is lost.
    one, other = (F.xxhash64(F.substring("digest", start, 8)) for start in (1, 9))
    return digests.select(*digests.columns[:-1], one.alias("a"), other.alias("b"))


def _thirds(lane: Column) -> list[Column]:
    """A 64-bit number in three, the uppermost with the bit that is left."""
    from pyspark.sql import functions as F

    top, *low = _SHIFTS
    mask = F.lit((1 << _BITS) - 1)
    return [
        F.shiftrightunsigned(lane, top),
        *(F.shiftrightunsigned(lane, shift).bitwiseAND(mask) for shift in low),
    ]


def _key(frame: DataFrame, name: str) -> Column:
    """A column to group by; text by its bytes, not by what a collation takes for the same."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    kind = frame.schema[name].dataType
    if isinstance(kind, T.ArrayType | T.MapType | T.StructType | T.VariantType):
        raise UsageError(message=f"by: column {name} cannot name a group: its type is {kind.simpleString()}")
    column = F.col(identifier(name))
    return column.cast("string") if isinstance(kind, T.StringType) else column
