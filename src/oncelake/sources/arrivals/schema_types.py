"""Types by name: the columns of a schema in Spark's DDL, for declarations and for the pinned schema, as Arrow types and back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import pyarrow as pa

UTC_TIMESTAMP = pa.timestamp("us", tz="UTC")
# Deeper types are legal JSON, but no column of a table: their values stay rescued.
MAX_DEPTH = 64
MAX_PRECISION = 38
# The types of columns, and their names in Spark.
NAMES = {
    pa.null(): "void",  # nothing but nulls was seen; no pinned column has this type
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    UTC_TIMESTAMP: "timestamp",
    pa.timestamp("us"): "timestamp_ntz",
}
_ALIASES = {
    "bool": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "real": pa.float32(),
    "timestamp_ltz": UTC_TIMESTAMP,
    "varchar": pa.string(),
    "char": pa.string(),
    "character": pa.string(),
}
_TYPES = {name: arrow for arrow, name in NAMES.items()} | _ALIASES
_DECIMALS = ("decimal", "dec", "numeric")
# Spark's signed integers that hold every value of Arrow's unsigned ones.
UNSIGNED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}
_TOKEN = re.compile(
    r"\s*(?:(?P<quoted>`(?:[^`]|``)*`)|(?P<text>'(?:[^'\\]|\\.|'')*')|(?P<sign>[<>(),:])|(?P<word>[^\s<>(),:`']+))"
)


def type_name(arrow: pa.DataType) -> str:
    """Return Spark's name of a type, such as `bigint` or `array<struct<a:int>>`; a type that Spark lacks by the one that holds it."""
    arrow = normalize(arrow)
    if arrow in NAMES:
        return NAMES[arrow]
    if pa.types.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if pa.types.is_list(arrow):
        return f"array<{type_name(arrow.value_type)}>"
    if pa.types.is_map(arrow):
        return f"map<{type_name(arrow.key_type)},{type_name(arrow.item_type)}>"
    if pa.types.is_struct(arrow):
        return f"struct<{','.join(f'{_quoted(each.name)}:{type_name(each.type)}' for each in arrow)}>"
    raise ValueError(f"{arrow} is no type of a column")


def parse_type(text: str) -> pa.DataType:
    """Return the type that a name in Spark's DDL stands for; raise ValueError if there is none."""
    reader = _Reader(text)
    found = reader.type()
    reader.expect_end()
    return found


def parse_schema(text: str) -> pa.Schema:
    """Return the columns of a schema such as `id bigint, tags array<string>`; raise ValueError if the text is no schema."""
    reader = _Reader(text)
    fields = reader.fields(end=None)
    reader.expect_end()
    return pa.schema(fields)


def normalize(arrow: pa.DataType) -> pa.DataType:
    """Return the type by which a column holds values of any Arrow type: one that Spark has, nullable at every level."""
    if arrow in NAMES:
        return arrow
    if pa.types.is_dictionary(arrow) or pa.types.is_run_end_encoded(arrow):
        return normalize(arrow.value_type)
    if pa.types.is_map(arrow):
        return pa.map_(normalize(arrow.key_type), normalize(arrow.item_type))
    if pa.types.is_struct(arrow):
        return pa.struct([pa.field(each.name, normalize(each.type)) for each in arrow])
    if _is_any_list(arrow):
        return pa.list_(normalize(arrow.value_type))
    return _normalized_scalar(arrow)


def _normalized_scalar(arrow: pa.DataType) -> pa.DataType:
    if arrow in UNSIGNED:
        return UNSIGNED[arrow]
    if pa.types.is_float16(arrow):
        return pa.float32()
    if pa.types.is_date(arrow):
        return pa.date32()
    if pa.types.is_timestamp(arrow):
        return UTC_TIMESTAMP if arrow.tz else pa.timestamp("us")
    if pa.types.is_decimal(arrow) and 0 <= arrow.scale <= arrow.precision <= MAX_PRECISION:
        return pa.decimal128(arrow.precision, arrow.scale)
    if pa.types.is_binary(arrow) or pa.types.is_large_binary(arrow) or pa.types.is_fixed_size_binary(arrow):
        return pa.binary()
    return pa.binary() if arrow == pa.binary_view() else pa.string()  # text, and times and durations as text


def _is_any_list(arrow: pa.DataType) -> bool:
    tests: Iterable[Callable[[pa.DataType], bool]] = (
        pa.types.is_list,
        pa.types.is_large_list,
        pa.types.is_fixed_size_list,
        pa.types.is_list_view,
        pa.types.is_large_list_view,
    )
    return any(test(arrow) for test in tests)


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else "`" + name.replace("`", "``") + "`"


class _Reader:
    """Reads types and columns from the tokens of a text in Spark's DDL."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._at = 0
        self._depth = 0

    def type(self) -> pa.DataType:
        """Read one type."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error("is nested too deeply")
        word = self._next().lower()
        found = self._nested(word) if self._peek() == "<" else self._scalar(word)
        self._depth -= 1
        return found

    def fields(self, end: str | None) -> list[pa.Field]:
        """Read columns with their types until a sign, or the end of the text."""
        found: list[pa.Field] = []
        while self._peek() != end:
            name = self._name()
            if self._peek() == ":":
                self._next()
            found.append(pa.field(name, self.type()))
            self._skip_annotations()
            if self._peek() != ",":
                break
            self._next()
        names = [each.name.casefold() for each in found]
        if len(names) > len(set(names)):
            raise self._error("has two columns of one name")
        return found

    def expect_end(self) -> None:
        """Raise an error if anything is left."""
        if self._peek() is not None:
            raise self._error(f"is not understood from {self._peek()!r} on")

    def _scalar(self, word: str) -> pa.DataType:
        arguments = self._arguments()
        if word in _DECIMALS:
            precision, scale = (*arguments, *(10, 0)[len(arguments) :])[:2]
            if not 0 <= scale <= precision <= MAX_PRECISION or not precision:
                raise self._error(f"has no decimal({precision},{scale}): precision is at most {MAX_PRECISION}")
            return pa.decimal128(precision, scale)
        if word not in _TYPES:
            raise self._error(f"has an unknown type {word!r}")
        if arguments and "char" not in word:
            raise self._error(f"has arguments of {word}")
        return _TYPES[word]

    def _nested(self, word: str) -> pa.DataType:
        self._expect("<")
        if word == "array":
            found = pa.list_(self.type())
        elif word == "map":
            key = self.type()
            self._expect(",")
            found = pa.map_(key, self.type())
        elif word == "struct":
            found = pa.struct(self.fields(end=">"))
        else:
            raise self._error(f"has an unknown type {word!r}")
        self._expect(">")
        return found

    def _arguments(self) -> tuple[int, ...]:
        if self._peek() != "(":
            return ()
        self._next()
        found = [self._number()]
        while self._peek() == ",":
            self._next()
            found.append(self._number())
        self._expect(")")
        return tuple(found)

    def _number(self) -> int:
        token = self._next()
        if not re.fullmatch(r"[0-9]{1,9}", token):
            raise self._error(f"has {token!r} where a number is expected")
        return int(token)

    def _name(self) -> str:
        token = self._next()
        if token[0] == "`":
            return token[1:-1].replace("``", "`")
        if token[0] in "<>(),:'":
            raise self._error(f"has {token!r} where a name is expected")
        return token

    def _skip_annotations(self) -> None:
        if (self._peek() or "").upper() == "NOT":
            self._next()
            if self._next().upper() != "NULL":
                raise self._error("has NOT without NULL")
        if (self._peek() or "").upper() == "COMMENT":
            self._next()
            if self._next()[0] != "'":
                raise self._error("has COMMENT without a text in single quotes")

    def _peek(self) -> str | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _next(self) -> str:
        token = self._peek()
        if token is None:
            raise self._error("ends too early")
        self._at += 1
        return token

    def _expect(self, sign: str) -> None:
        if self._peek() != sign:
            raise self._error(f"has {self._peek()!r} where {sign!r} is expected")
        self._at += 1

    def _error(self, problem: str) -> ValueError:
        return ValueError(f"schema {self._text!r} {problem}")


def _tokens(text: str) -> list[str]:
    found, at, end = [], 0, len(text.rstrip())
    while at < end:
        token = _TOKEN.match(text, at)
        if token is None:
            raise ValueError(f"schema {text!r} is not understood from {text[at:end][:20]!r} on")
        found.append(token[token.lastgroup or 0])
        at = token.end()
    return found
