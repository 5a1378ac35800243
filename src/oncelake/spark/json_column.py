"""Decode a column of JSON objects by a schema, strictly: a value that would become another one does not fit."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_BAD = "__once_bad_json"
# Spark takes less for a date or a time: "12:00" is a time of the day on which it is read.
_DATE = r"^[+-]?\d{4,6}-\d{1,2}-\d{1,2}$"
_TIME = r"^[+-]?\d{4,6}-\d{1,2}-\d{1,2}([T ].*)?$"
# A timestamp has microseconds.
_FINER = r"\.\d{6}\d*[1-9]"
_MAX_PRECISION, _FRACTION = 38, 18


def decode_json(frame: DataFrame, column: str, schema: str) -> tuple[DataFrame, Column, Column]:
    """Return a frame, and of it the decoded column and why a value cannot be decoded. Nothing becomes null or another value in silence.

    The frame has two columns more: what they hold is used several times, and Spark would parse the text each time.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    text, struct = F.col(column).cast("string"), StructType.fromDDL(schema)
    assert isinstance(struct, StructType)
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD}
    parsed, wrapped = (f"__once_{each}_{column}" for each in ("json", "variant"))
    frame = frame.withColumns({parsed: F.from_json(text, f"{schema}, {_BAD} string", options), wrapped: _wrapped(text)})
    found, root = F.col(parsed), _Place(F.col(wrapped), "$['a']")
    no_object = F.when(~F.ltrim(text).startswith("{"), F.lit(f"{column}: the JSON text is not an object"))
    no_fit = F.when(found[_BAD].isNotNull(), F.lit(f"{column}: the JSON text does not fit the schema"))
    spelling = F.lit(f"{column}: a key is spelled in another case than its column")
    other_case = F.when(_differs_in_case(text, struct.names), spelling)
    misfits = [
        F.when(
            found[each.name].isNotNull() & ~fits,
            F.lit(f"{column}: {each.name} would change as {each.dataType.simpleString()}"),
        )
        for each in struct
        if (fits := _fits(root.child(each.name), found[each.name], each.dataType)) is not None
    ]
    problem = json_problem(text, root.variant, column)
    return frame, found.dropFields(_BAD), F.coalesce(problem, no_object, no_fit, other_case, *misfits)


def text_problem(text: Column, name: str) -> Column:
    """Return why a text is no JSON, if nothing else is wanted of it."""
    return json_problem(text, _wrapped(text), name)


def json_problem(text: Column, wrapped: Column, name: str) -> Column:
    """Return why a text, which is also the value of a `wrapped` object, is not one JSON value and nothing else; null if it is.

    Spark's parser stops at the end of a value and ignores what follows. Only one whole value is right both between the
    brackets of an array and as the value of a key.
    """
    from pyspark.sql import functions as F

    in_array = F.try_parse_json(F.concat(F.lit("["), text, F.lit("]")))
    is_json = in_array.isNotNull() & wrapped.isNotNull()
    return F.when(text.isNotNull() & ~is_json, F.lit(f"{name}: the text is not valid JSON"))


def _wrapped(text: Column) -> Column:
    """Return an object that has the JSON text as its value of `a`, as a variant."""
    from pyspark.sql import functions as F

    return F.try_parse_json(F.concat(F.lit('{"a":'), text, F.lit("}")))


def _differs_in_case(text: Column, names: Iterable[str]) -> Column:
    """Return whether an object has a key that is a column in another spelling: the column would be null."""
    from pyspark.sql import functions as F

    known, lower = F.array(*map(F.lit, names)), F.array(*(F.lit(name.lower()) for name in names))
    keys = F.coalesce(F.json_object_keys(text), F.array().cast("array<string>"))
    return F.exists(keys, lambda key: F.array_contains(lower, F.lower(key)) & ~F.array_contains(known, key))


class _Place(NamedTuple):
    """A value in a variant, which keeps the numbers and texts of its JSON as they are spelled."""

    variant: Column
    path: str

    def child(self, name: str) -> _Place:
        quote = "'" if '"' in name else '"'
        return _Place(self.variant, f"{self.path}[{quote}{name}{quote}]")

    def get(self, type_: str) -> Column:
        from pyspark.sql import functions as F

        return F.try_variant_get(self.variant, self.path, type_)

    @property
    def kind(self) -> Column:
        """The type of the value in the JSON text."""
        from pyspark.sql import functions as F

        return F.schema_of_variant(self.get("variant"))


def _fits(place: _Place, value: Column, type_: DataType) -> Column | None:
    """Return whether a decoded value is that of the JSON text; None where Spark itself takes no other one."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if isinstance(type_, T.StructType):
        found = ((value[each.name], _fits(place.child(each.name), value[each.name], each.dataType)) for each in type_)
        parts = [each.isNull() | fits for each, fits in found if fits is not None]
        return reduce(lambda one, other: one & other, parts) if parts else None
    if isinstance(type_, T.ArrayType):
        return _all_fit(place.get("array<variant>"), value, type_.elementType)
    if isinstance(type_, T.MapType):
        variants = place.get("map<string,variant>")
        in_order = F.transform(F.map_keys(value), lambda key: F.element_at(variants, key))
        return _all_fit(in_order, F.map_values(value), type_.valueType)
    return _scalar_fits(place, value, type_)


def _scalar_fits(place: _Place, value: Column, type_: DataType) -> Column | None:
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    is_text, text = place.kind == "STRING", place.get("string")
    if isinstance(type_, T.DecimalType):
        return _same_number(text, value, _MAX_PRECISION - type_.precision + type_.scale)
    if isinstance(type_, T.DoubleType | T.FloatType):
        return is_text | (F.abs(value) != F.lit(float("inf")).cast(type_))
    if isinstance(type_, T.DateType):
        return ~is_text | text.rlike(_DATE)
    if isinstance(type_, T.TimestampType | T.TimestampNTZType):
        return ~is_text | (text.rlike(_TIME) & ~text.rlike(_FINER))
    if isinstance(type_, T.StringType):
        return ~place.kind.startswith("DECIMAL") | (text == value) | _same_number(text, value, _FRACTION)
    return None


def _same_number(text: Column, value: Column, scale: int) -> Column:
    from pyspark.sql import functions as F

    exact = f"decimal({_MAX_PRECISION},{scale})"
    return F.coalesce(text.try_cast(exact) == value.try_cast(exact), F.lit(False))


def _all_fit(variants: Column, values: Column, type_: DataType) -> Column | None:
    """Return whether all elements of an array are those of the JSON text."""
    from pyspark.sql import functions as F

    if _fits(_Place(variants, "$"), values, type_) is None:
        return None

    def fits(variant: Column, value: Column) -> Column:
        found = _fits(_Place(variant, "$"), value, type_)
        return value.isNull() if found is None else value.isNull() | found

    return F.forall(F.zip_with(variants, values, fits), lambda fit: fit)
