"""Decode a column of Avro values with the library fastavro: Spark's own module is not published for this version."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from datetime import time
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from oncelake.errors import SparkUnavailable
from oncelake.spark.sql import identifier

if TYPE_CHECKING:
    from pyspark.sql import Column

# A magic byte and the id of a schema in a registry, before each value.
CONFLUENT_HEADER = 5
_MAGIC = 0
_PRIMITIVES = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
    "enum": "string",
    "fixed": "binary",
    "null": "void",
}
# By the type that they are written as: of another one fastavro gives the plain value. Times of day stay numbers.
_LOGICAL = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
}
_DECIMAL = "decimal"
_BITS = {"int": 31, "long": 63}
_MAX_PRECISION = 38
Schema = Any  # a text, a list or an object of JSON


def decode_avro(column: Column, schema: str, name: str, header: int = 0) -> tuple[Column, Column]:
    """Return the decoded column, and why a value cannot be decoded. Each value begins with so many bytes of a header."""
    from pyspark.sql import functions as F

    result = f"value {column_type(json.loads(schema))}, reason string"

    def decode(content: bytes | None) -> tuple[Any, str | None]:
        if content is None:
            return None, None
        value, problem = decode_value(bytes(content), schema, header)
        return value, problem and f"{name}: {problem}"

    # Not by Arrow, whatever the session says: its conversions are others.
    decoded = F.udf(decode, result, useArrow=False)(column)
    return decoded["value"], decoded["reason"]


def decode_value(content: bytes, schema: str, header: int = 0) -> tuple[Any, str | None]:
    """Return a decoded value as Spark takes it, and None; or None and why it cannot be decoded."""
    import fastavro

    if header and (len(content) < header or content[0] != _MAGIC):
        return None, "the bytes have no header with the id of a schema"
    stream = io.BytesIO(content[header:])
    try:
        parsed, declared, named = _parsed(schema)
        value = fastavro.schemaless_reader(stream, parsed, None)
        if stream.read(1):
            return None, "the bytes are not Avro of the schema: bytes are left"
        return _convert(value, declared, named), None
    except MemoryError:
        return None, "the bytes are not Avro of the schema: MemoryError"
    except Exception as error:  # noqa: BLE001  whatever damaged bytes make of the library
        return None, f"the bytes are not Avro of the schema: {type(error).__name__}"


@lru_cache(maxsize=64)
def _parsed(schema: str) -> tuple[Any, Schema, dict[str, Schema]]:
    """Return a schema as fastavro has it, as it was declared, and the types in it that have names."""
    import fastavro

    declared = json.loads(schema)
    named: dict[str, Schema] = {}
    _type(declared, named, ())
    return fastavro.parse_schema(_without_decimals(declared)), declared, named


def _convert(value: Any, schema: Schema, named: dict[str, Schema]) -> Any:
    """Return a value as Spark takes it; raise ValueError where Spark would make another value or null of it."""
    schema = _resolve(schema, named)
    kind = schema["type"]
    if value is None:
        return None
    if kind == "record":
        return {each["name"]: _convert(value[each["name"]], each["type"], named) for each in schema["fields"]}
    if kind == "array":
        return [_convert(each, schema["items"], named) for each in value]
    if kind == "map":
        return {key: _convert(each, schema["values"], named) for key, each in value.items()}
    if schema.get("logicalType") == _DECIMAL and isinstance(value, bytes):
        return _decimal(int.from_bytes(value, "big", signed=True), schema)
    if isinstance(value, time):
        micros = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
        return micros // 1000 if schema["logicalType"] == "time-millis" else micros
    if kind in _BITS and isinstance(value, int) and not -(1 << _BITS[kind]) <= value < 1 << _BITS[kind]:
        raise ValueError("the number is too large")
    return str(value) if schema.get("logicalType") == "uuid" else value


def _decimal(unscaled: int, schema: Mapping[str, Any]) -> Decimal:
    """Return a decimal with exactly its digits; raise ValueError if they are more than the schema has."""
    digits = tuple(map(int, str(abs(unscaled))))
    if len(digits) > schema["precision"]:
        raise ValueError("more digits than the precision")
    return Decimal((int(unscaled < 0), digits, -schema.get("scale", 0)))


def _without_decimals(schema: Schema) -> Schema:
    """Return a schema whose decimals are bytes: fastavro would round them to their precision."""
    if isinstance(schema, list):
        return [_without_decimals(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: each for name, each in schema.items() if (name, each) != ("logicalType", _DECIMAL)}
    return {name: _without_decimals(each) for name, each in kept.items()}


def _resolve(schema: Schema, named: dict[str, Schema]) -> Mapping[str, Any]:
    """Return a schema as an object: without null in a union, without a nested type, and not by its name."""
    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        if len(others) > 1:
            raise ValueError(f"a union of several types has no column type: {json.dumps(schema)}")
        return _resolve(others[0] if others else "null", named)
    if isinstance(schema, str):
        return named.get(schema, {"type": schema})  # type: ignore[no-any-return]
    if "name" in schema and schema.get("type") in ("record", "enum", "fixed"):
        named.setdefault(schema["name"], schema)
        if schema.get("namespace"):
            named.setdefault(f"{schema['namespace']}.{schema['name']}", schema)
    kind = schema.get("type")
    if isinstance(kind, dict | list) or kind in named:
        return _resolve(kind, named)
    return schema  # type: ignore[no-any-return]


def column_type(schema: Schema) -> str:
    """Return the type of a column for an Avro schema, as SQL spells it; raise ValueError for one that has none."""
    return _type(schema, {}, ())


def _type(schema: Schema, named: dict[str, Schema], inside: tuple[str, ...]) -> str:
    """Return the type of a schema. `inside` are the records around it: one that holds itself has no type."""
    resolved = _resolve(schema, named)
    kind, logical = resolved.get("type"), resolved.get("logicalType")
    if kind == "record":
        if resolved["name"] in inside:
            raise ValueError(f"the record {resolved['name']} holds itself, which no column type does")
        around = (*inside, resolved["name"])
        fields = (f"{identifier(each['name'])}: {_type(each['type'], named, around)}" for each in resolved["fields"])
        return f"struct<{', '.join(fields)}>"
    if kind == "array":
        return f"array<{_type(resolved['items'], named, inside)}>"
    if kind == "map":
        return f"map<string, {_type(resolved['values'], named, inside)}>"
    if logical == _DECIMAL and kind in ("bytes", "fixed"):
        precision, scale = resolved.get("precision", 0), resolved.get("scale", 0)
        if not 0 <= scale <= precision <= _MAX_PRECISION:
            raise ValueError(f"decimal({precision}, {scale}) is no column type")
        return f"decimal({precision}, {scale})"
    if logical == "uuid":
        return "string"
    name = _LOGICAL.get((str(kind), str(logical))) or _PRIMITIVES.get(str(kind))
    if name is None:
        raise ValueError(f"{kind!r} is no Avro type")
    return name


def schema_problem(schema: str) -> str | None:
    """Return what is wrong with an Avro schema, or None. Needs no JVM."""
    try:
        column_type(json.loads(schema))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
    return None


def require_fastavro() -> None:
    """Raise SparkUnavailable if the library that decodes Avro is not installed."""
    try:
        import fastavro  # noqa: F401
    except ImportError as error:
        raise SparkUnavailable(problem="fastavro is not installed", next='pip install "oncelake[avro]"') from error
