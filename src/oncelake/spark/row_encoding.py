"""Encode a row as text injectively: two rows are equal if and only if their texts are equal.

Values are separated by commas, and null is "n". The encoding of every other value delimits itself:

    a number, date, time …      hexadecimal digits, "true" or "false", decimal digits: no delimiter
    text                        the length in bytes, a colon, the bytes
    binary                      two hexadecimal digits for each byte, a full stop
    an array                    [ the items in order ]
    a map                       { the entries, sorted, because a map has no order }
    a struct                    ( the fields in order )
    a variant                   "v", its JSON, a line feed, a digest of its schema

The encoding depends on no session setting: not on time zone, ANSI mode, collation, or the printed form of floats.
A machine word that SQL cannot print exactly is printed as its xxhash64: on a single word it is a bijection, and Spark
normalizes −0.0 to 0.0 and every NaN to one value there.

A variant is the exception, because SQL exposes only its JSON: its floats are printed, so −0.0 is not 0.0 there, and the
schema of an array of mixed types does not name them, so a date in it equals its text.

Every value is referenced once, because inside an array or a map Spark evaluates an expression once per reference.
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

# Wider decimals do not fit a machine word. With more decimal places than this, their text depends on the ANSI mode.
_WORD_DIGITS, _PLAIN_PLACES = 18, 6
_INTEGERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_TEXTS = (T.StringType, T.CharType, T.VarcharType)
_SUPPORTED = (
    *(*_INTEGERS, T.FloatType, T.DoubleType, T.DecimalType, T.BooleanType, T.NullType),
    *(*_TEXTS, T.BinaryType, T.VariantType),
    *(T.DateType, T.TimestampType, T.TimestampNTZType, T.TimeType, T.DayTimeIntervalType, T.YearMonthIntervalType),
)


def require_supported(kind: T.DataType, where: str) -> None:
    """Raise UsageError for a type that has no encoding; no column is excluded silently."""
    if isinstance(kind, T.ArrayType):
        require_supported(kind.elementType, f"{where}[]")
    elif isinstance(kind, T.MapType):
        require_supported(kind.keyType, f"{where}.key")
        require_supported(kind.valueType, f"{where}.value")
    elif isinstance(kind, T.StructType):
        for field in kind.fields:
            require_supported(field.dataType, f"{where}.{field.name}")
    elif not isinstance(kind, _SUPPORTED):
        problem = f"cannot fingerprint column {where}: its type is {kind.simpleString()}"
        raise UsageError(message=f"{problem}; exclude it by name (exclude=) or cast it")


def row_text(fields: list[T.StructField]) -> Column:
    """Return the text of a row of these columns, never null."""
    return F.concat(F.lit(""), *_comma_separated((F.col(identifier(f.name)), f.dataType) for f in fields))


def content_text(fields: list[T.StructField], get_column: Callable[[str], Column]) -> Column:
    """Return the text of the non-null values of a row, never null.

    Columns are sorted by name and nulls are omitted, so that neither the order of columns nor a column added later
    changes the text of an existing row.
    """
    by_name = sorted(fields, key=lambda field: field.name.casefold())
    texts = [F.concat(F.lit(f"{quote(f.name.casefold())}="), _text(get_column(f.name), f.dataType)) for f in by_name]
    return F.concat_ws(",", *texts)


def row_hashes(fields: list[T.StructField], salts: tuple[int, ...]) -> list[Column]:
    """Return a fast 64-bit hash of the row for every salt; not injective, but sensitive to nulls, sizes and order."""
    found = [leaf for field in fields for leaf in _leaves(F.col(identifier(field.name)), field.dataType)]
    nulls = _flags([column.isNull() for column, _ in found])
    hashed = [value for _, value in found if value is not None]
    return [F.xxhash64(F.lit(salt), *nulls, *hashed) for salt in salts]


def type_text(kind: T.DataType) -> str:
    """Return a type as text, without nullability, which Delta does not keep; quoted names cannot look like a type."""
    if isinstance(kind, T.ArrayType):
        return f"array<{type_text(kind.elementType)}>"
    if isinstance(kind, T.MapType):
        return f"map<{type_text(kind.keyType)}, {type_text(kind.valueType)}>"
    if isinstance(kind, T.StructType):
        return "struct<" + ", ".join(f"{identifier(f.name)} {type_text(f.dataType)}" for f in kind.fields) + ">"
    return "string" if isinstance(kind, T.CharType | T.VarcharType) else kind.simpleString()


def has_order(kind: T.DataType) -> bool:
    """Return whether Spark can sort by a type."""
    if isinstance(kind, T.ArrayType):
        return has_order(kind.elementType)
    if isinstance(kind, T.StructType):
        return all(has_order(field.dataType) for field in kind.fields)
    return not isinstance(kind, T.MapType | T.VariantType)


def _text(column: Column, kind: T.DataType) -> Column:
    """Return the text of a value, null for null."""
    if isinstance(kind, T.StructType):
        fields = _comma_separated((column.getField(f.name), f.dataType) for f in kind.fields)
        return F.when(column.isNotNull(), F.concat(F.lit("("), *fields, F.lit(")")))
    if isinstance(kind, T.ArrayType):
        item = kind.elementType
        texts = F.transform(column, lambda x: _text(x, item))
        return F.concat(F.lit("["), F.array_join(texts, ",", "n"), F.lit("]"))
    if isinstance(kind, T.MapType):
        return _map(column, kind)
    if isinstance(kind, T.VariantType):
        # JSON has no bare line feed, so one can end it. It prints a date like a string: the schema distinguishes them.
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
        return F.concat(
            *_comma_separated([(pair.getField("key"), kind.keyType), (pair.getField("value"), kind.valueType)])
        )

    entries = F.sort_array(F.transform(F.map_entries(column), entry))
    return F.concat(F.lit("{"), F.array_join(entries, ","), F.lit("}"))


def _comma_separated(values: Iterable[tuple[Column, T.DataType]]) -> Iterator[Column]:
    """Yield the texts of values, each followed by a comma, never null."""
    for column, kind in values:
        yield F.coalesce(_text(column, kind), F.lit("n"))
        yield F.lit(",")


def _word(column: Column, kind: T.DataType) -> Column:
    """Return the digits of a value of fixed size, null for null."""
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
    """Yield pairs of a nullable column, whose null a hash would skip, and the value to hash; structs field by field."""
    if isinstance(kind, T.StructType):
        yield column, None
        for field in kind.fields:
            yield from _leaves(column.getField(field.name), field.dataType)
    elif isinstance(kind, T.ArrayType | T.MapType | T.VariantType):
        # xxhash64 of an array skips nulls and the ends of inner arrays; maps and variants have no hash.
        yield column, _text(column, kind)
    elif not isinstance(kind, T.NullType):
        yield column, _plain(column, kind) if isinstance(kind, _TEXTS) else column


def _flags(nulls: list[Column]) -> list[Column]:
    """Pack the null flags, up to 32 in a word."""
    return [
        reduce(
            Column.bitwiseOR, (F.shiftleft(null.cast("int"), bit) for bit, null in enumerate(nulls[start : start + 32]))
        )
        for start in range(0, len(nulls), 32)
    ]


def _plain(column: Column, kind: T.DataType) -> Column:
    """Return text compared by its bytes, because a collation may treat different texts as equal."""
    return column if kind == T.StringType() else column.cast("string")
