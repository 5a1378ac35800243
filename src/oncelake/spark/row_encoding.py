"""A row as text that no row of other content has, so that two rows are equal when their texts are.

Values are separated by commas, and null is "n". Every other value says itself where it ends:

    a number, date, time …      hexadecimal digits, "true" or "false", decimal digits: nothing that looks like a mark
    text                        the length in bytes, a colon, the bytes
    binary                      two hexadecimal digits for each byte, a full stop
    an array                    [ the items in order ]
    a map                       { the entries, sorted, because their order means nothing }
    a struct                    ( the fields in order )
    a variant                   "v", its JSON, a line feed, a digest of its schema

Nothing here depends on a setting of the session: no time zone, no ANSI mode, no collation, no float's printed form.
Where a value is one machine word that SQL cannot print exactly, xxhash64 of it is printed: over a single word it is a
bijection, and it is where Spark itself makes −0.0 into 0.0 and every NaN into one.

A variant is the exception, because SQL shows nothing of it but its JSON: the floats in it are printed, so −0.0 is not 0.0
there, and the schema of an array that mixes types says no more than that, so a date in one looks like its text.

Every value is used once, because inside an array or a map Spark computes again what is named again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from urllib.parse import quote

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from oncelake.errors import UsageError
from oncelake.spark.sql import identifier

# Wider decimals are no machine word. With more decimal places than these, their text depends on the ANSI mode.
_WORD_DIGITS, _PLAIN_PLACES = 18, 6
_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_TEXTS = (T.StringType, T.CharType, T.VarcharType)
_KNOWN = (
    *(*_INTEGERS, T.FloatType, T.DoubleType, T.DecimalType, T.BooleanType, T.NullType),
    *(*_TEXTS, T.BinaryType, T.VariantType),
    *(T.DateType, T.TimestampType, T.TimestampNTZType, T.TimeType, T.DayTimeIntervalType, T.YearMonthIntervalType),
)


def refuse_unknown(kind: T.DataType, where: str) -> None:
    """Refuse a type of which no fingerprint can be taken; nothing is left out without being asked for."""
    if isinstance(kind, T.ArrayType):
        refuse_unknown(kind.elementType, f"{where}[]")
    elif isinstance(kind, T.MapType):
        refuse_unknown(kind.keyType, f"{where}.key")
        refuse_unknown(kind.valueType, f"{where}.value")
    elif isinstance(kind, T.StructType):
        for field in kind.fields:
            refuse_unknown(field.dataType, f"{where}.{field.name}")
    elif not isinstance(kind, _KNOWN):
        problem = f"no fingerprint can be taken of column {where}: its type is {kind.simpleString()}"
        raise UsageError(message=f"{problem}; leave it out by name (exclude=) or cast it")


def row_text(fields: list[T.StructField]) -> Column:
    """The text of a row of these columns, never null."""
    return F.concat(F.lit(""), *_listed((F.col(identifier(f.name)), f.dataType) for f in fields))


def content_text(fields: list[T.StructField], of: Callable[[str], Column]) -> Column:
    """The text of what is there in a row, never null.

    Columns go by name and nulls are left out, so that neither the order of the columns nor one added later changes the
    text of a row that was there before.
    """
    known = sorted(fields, key=lambda field: field.name.casefold())
    texts = [F.concat(F.lit(f"{quote(f.name.casefold())}="), _text(of(f.name), f.dataType)) for f in known]
    return F.concat_ws(",", *texts)


def row_hashes(fields: list[T.StructField], salts: tuple[int, ...]) -> list[Column]:
    """A quick 64-bit hash of the row for every salt; not injective, but no null, size or order slips through."""
    found = [leaf for field in fields for leaf in _leaves(F.col(identifier(field.name)), field.dataType)]
    nulls = _flags([column.isNull() for column, _ in found])
    hashed = [value for _, value in found if value is not None]
    return [F.xxhash64(F.lit(salt), *nulls, *hashed) for salt in salts]


def type_text(kind: T.DataType) -> str:
    """A type without nullability, which Delta does not keep; names quoted, so that no name looks like a type."""
    if isinstance(kind, T.ArrayType):
        return f"array<{type_text(kind.elementType)}>"
    if isinstance(kind, T.MapType):
        return f"map<{type_text(kind.keyType)}, {type_text(kind.valueType)}>"
    if isinstance(kind, T.StructType):
        return "struct<" + ", ".join(f"{identifier(f.name)} {type_text(f.dataType)}" for f in kind.fields) + ">"
    return "string" if isinstance(kind, T.CharType | T.VarcharType) else kind.simpleString()


def has_order(kind: T.DataType) -> bool:
    """Whether Spark can sort by a type."""
    if isinstance(kind, T.ArrayType):
        return has_order(kind.elementType)
    if isinstance(kind, T.StructType):
        return all(has_order(field.dataType) for field in kind.fields)
    return not isinstance(kind, T.MapType | T.VariantType)


def _text(column: Column, kind: T.DataType) -> Column:
    """The text of a value, null for null."""
    if isinstance(kind, T.StructType):
        fields = _listed((column.getField(f.name), f.dataType) for f in kind.fields)
        return F.when(column.isNotNull(), F.concat(F.lit("("), *fields, F.lit(")")))
    if isinstance(kind, T.ArrayType):
        item = kind.elementType
        texts = F.transform(column, lambda x: _text(x, item))
        return F.concat(F.lit("["), F.array_join(texts, ",", "n"), F.lit("]"))
    if isinstance(kind, T.MapType):
        return _map(column, kind)
    if isinstance(kind, T.VariantType):
        # JSON has no bare line feed, so one may end it. It prints a date like a text: the schema tells them apart.
        schema = F.sha2(F.schema_of_variant(column), 256)
        return F.concat(F.lit("v"), F.to_json(column, {"timeZone": "UTC"}), F.lit("\n"), schema)
    if isinstance(kind, _TEXTS):
        text = _plain(column, kind)
        return F.concat(F.hex(F.octet_length(text).cast("bigint")), F.lit(":"), text)
    if isinstance(kind, T.BinaryType):
        return F.concat(F.hex(column), F.lit("."))
    return _word(column, kind)


def _map(column: Column, kind: T.MapType) -> Column:
    def entry(pair: Column) -> Column:
        return F.concat(*_listed([(pair.getField("key"), kind.keyType), (pair.getField("value"), kind.valueType)]))

    entries = F.sort_array(F.transform(F.map_entries(column), entry))
    return F.concat(F.lit("{"), F.array_join(entries, ","), F.lit("}"))


def _listed(values: Iterable[tuple[Column, T.DataType]]) -> Iterator[Column]:
    """The texts of some values and the commas behind them, none of them null."""
    for column, kind in values:
        yield F.coalesce(_text(column, kind), F.lit("n"))
        yield F.lit(",")


def _word(column: Column, kind: T.DataType) -> Column:
    """The digits of a value of fixed size, null for null."""
    if isinstance(kind, _INTEGERS):
        return F.hex(column.cast("bigint"))
    if isinstance(kind, T.TimestampType):
        return F.hex(F.unix_micros(column))
    if isinstance(kind, T.DateType):
        return F.hex(F.unix_date(column).cast("bigint"))
    if isinstance(kind, T.BooleanType):
        return column.cast("string")
    if isinstance(kind, T.NullType):
        return F.lit(None).cast("string")
    if isinstance(kind, T.DecimalType) and kind.precision > _WORD_DIGITS:
        plain = kind.scale <= _PLAIN_PLACES
        return column.cast("string") if plain else F.when(column.isNotNull(), F.format_string("%s", column))
    return F.when(column.isNotNull(), F.hex(F.xxhash64(column)))


def _leaves(column: Column, kind: T.DataType) -> Iterator[tuple[Column, Column | None]]:
    """What may be null in a column, which a hash leaves out, and what of it is hashed; structs field by field."""
    if isinstance(kind, T.StructType):
        yield column, None
        for field in kind.fields:
            yield from _leaves(column.getField(field.name), field.dataType)
    elif isinstance(kind, T.ArrayType | T.MapType | T.VariantType):
        # A hash of an array skips nulls and forgets where an inner array ends; maps and variants have none.
        yield column, _text(column, kind)
    elif not isinstance(kind, T.NullType):
        yield column, _plain(column, kind) if isinstance(kind, _TEXTS) else column


def _flags(nulls: list[Column]) -> list[Column]:
    """The null flags, up to 32 in a word."""
    return [
        reduce(
            Column.bitwiseOR, (F.shiftleft(null.cast("int"), bit) for bit, null in enumerate(nulls[start : start + 32]))
        )
        for start in range(0, len(nulls), 32)
    ]


def _plain(column: Column, kind: T.DataType) -> Column:
    """Text as its bytes; a collation would let other spellings pass for the same."""
    return column if kind == T.StringType() else column.cast("string")
