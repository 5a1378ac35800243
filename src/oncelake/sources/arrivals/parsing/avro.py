"""Read Avro files into Arrow columns, by the library fastavro. What no Arrow type holds stays as values of Python."""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from oncelake.sources.arrivals.parsing.array_casts import Cast
from oncelake.sources.arrivals.parsing.decompress import BadFile, check_size
from oncelake.sources.arrivals.parsing.json_text import dump
from oncelake.sources.arrivals.parsing.values import converter, type_of

_SYNC = 16
_PRIMITIVES = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
# By the type that they are written as: of another one fastavro gives the plain number.
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("int", "time-millis"): pa.time64("us"),
    ("long", "time-micros"): pa.time64("us"),
}
Schema = Any  # a text, a list or an object of JSON


class MixedColumn(NamedTuple):
    """Values of several kinds, such as a union has, or of a type that refers to itself."""

    values: list[Any]

    def cast(self, type_: pa.DataType) -> Cast:
        """Return the values in a type, and the reasons for those that it cannot hold."""
        results = [converter(type_)(value) for value in self.values]
        reasons = pa.array([reason for _, reason in results], pa.string())
        values = pa.array([value for value, _ in results], type_)
        return values, None if reasons.null_count == len(reasons) else reasons

    def json_values(self) -> pa.Array:
        """Return each value as the text of its JSON."""
        return pa.array([None if value is None else dump(value) for value in self.values], pa.string())

    def types(self, lost: pa.Array, current: pa.DataType | None) -> Counter[str]:
        """Return the types that would hold the values that are lost, and how many of each there are."""
        chosen = zip(self.values, lost.to_pylist(), strict=True)
        return Counter(str(type_of(value, current)) for value, is_lost in chosen if is_lost)


def read_avro(content: bytes, limit: int) -> tuple[dict[str, pa.Array | MixedColumn], int]:
    """Return the columns of an Avro file, and the number of its rows."""
    try:
        import fastavro
    except ImportError:
        raise BadFile('Avro is read by the library fastavro: pip install "oncelake[avro]"') from None
    stream = io.BytesIO(content)
    reader = fastavro.reader(stream)
    _check_blocks(content, stream.tell(), reader.codec, limit)
    schema: Schema = reader.writer_schema
    records: list[Any] = list(reader)
    if not isinstance(schema, Mapping) or schema["type"] != "record":
        return {"value": _column(schema, {}, records)}, len(records)
    named: dict[str, Schema] = {}
    columns = {
        each["name"]: _column(each["type"], named, [record[each["name"]] for record in records])
        for each in schema["fields"]
    }
    return columns, len(records)


def _column(schema: Schema, named: dict[str, Schema], values: list[Any]) -> pa.Array | MixedColumn:
    type_ = _arrow_type(schema, named, ())
    if type_ is None:
        return MixedColumn(values)
    try:
        return pa.array(values, type_)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return MixedColumn(values)


def _arrow_type(schema: Schema, named: dict[str, Schema], inside: tuple[str, ...]) -> pa.DataType | None:
    """Return the type that holds the values of a schema, or None if there is none. `inside` are the records around it."""
    if isinstance(schema, list):
        kinds = [each for each in schema if each != "null"]
        return _arrow_type(kinds[0], named, inside) if len(kinds) == 1 else None if kinds else pa.null()
    if isinstance(schema, str):
        return _PRIMITIVES.get(schema) or (_arrow_type(named[schema], named, inside) if schema in named else None)
    kind = schema["type"]
    if "name" in schema:
        named.setdefault(schema["name"], schema)
    if kind == "record":
        return None if schema["name"] in inside else _struct_type(schema, named, (*inside, schema["name"]))
    if kind in ("array", "map"):
        item = _arrow_type(schema["items" if kind == "array" else "values"], named, inside)
        return None if item is None else pa.list_(item) if kind == "array" else pa.map_(pa.string(), item)
    return _scalar_type(schema, named, inside)


def _struct_type(schema: Schema, named: dict[str, Schema], inside: tuple[str, ...]) -> pa.DataType | None:
    fields = [(each["name"], _arrow_type(each["type"], named, inside)) for each in schema["fields"]]
    return None if any(type_ is None for _, type_ in fields) else pa.struct(fields)


def _scalar_type(schema: Schema, named: dict[str, Schema], inside: tuple[str, ...]) -> pa.DataType | None:
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "uuid":
        return None  # fastavro gives objects
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision", 0), schema.get("scale", 0)
        return pa.decimal128(precision, scale) if 0 <= scale <= precision <= 38 else None
    if kind in ("enum", "fixed"):
        return pa.string() if kind == "enum" else pa.binary()
    return _LOGICAL.get((kind, logical)) or _arrow_type(kind, named, inside)


def _check_blocks(content: bytes, position: int, codec: str, limit: int) -> None:
    """Refuse a file that expands beyond the limit, before fastavro expands it; or one with more records than bytes."""
    size = records = 0
    while position < len(content):
        count, position = _number(content, position)
        length, position = _number(content, position)
        if count < 0 or length < 0 or position + length + _SYNC > len(content):
            raise BadFile("not valid avro: a block is longer than the file: looks truncated")
        size += sum(map(len, _expand(codec, content[position : position + length], limit - size)))
        records += count
        check_size(size, limit)
        if records > max(size, 1 << 16):
            raise BadFile("not valid avro: too many records")
        position += length + _SYNC


def _number(content: bytes, position: int) -> tuple[int, int]:
    """Return the number that is at a position, as Avro writes it, and where it ends."""
    number = shift = 0
    while position < len(content) and shift < 64:
        byte = content[position]
        number, shift, position = number | (byte & 0x7F) << shift, shift + 7, position + 1
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
    raise BadFile("not valid avro: the header of a block is cut: looks truncated")


def _expand(codec: str, data: bytes, limit: int) -> Iterator[bytes]:
    """Yield what a block expands to, hardly more than the limit. The codecs that are not here cannot expand a lot."""
    open_stream = _CODECS.get(codec)
    if open_stream is None:
        yield data
        return
    stream = open_stream(data)
    while limit >= 0 and (chunk := stream(1 << 16)):
        limit -= len(chunk)
        yield chunk


def _deflate(data: bytes) -> Callable[[int], bytes]:
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    waiting = [data]

    def read(size: int) -> bytes:
        chunk = stream.decompress(waiting[0], size)
        waiting[0] = stream.unconsumed_tail
        return chunk

    return read


_CODECS: Mapping[str, Callable[[bytes], Callable[[int], bytes]]] = {
    "deflate": _deflate,
    "bzip2": lambda data: bz2.BZ2File(io.BytesIO(data)).read,
    "xz": lambda data: lzma.LZMAFile(io.BytesIO(data)).read,  # noqa: SIM115 - only memory is open
    "zstandard": lambda data: pa.CompressedInputStream(pa.BufferReader(data), "zstd").read,
}
