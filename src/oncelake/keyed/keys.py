"""`once.key`: a surrogate key hashed from other columns, identical on every run and every machine, without a sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelake.errors import BadDeclaration
from oncelake.model.source_location import declared_at

if TYPE_CHECKING:
    from pyspark.sql import Column

# Every option is set, because Spark takes a missing one from the session.
_JSON = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "locale": "en-US",
    "dateFormat": "yyyy-MM-dd",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_INTEGERS = "^(tinyint|smallint|int)$"


def key(*columns: str | Column) -> Column:
    """Return a key of 64 hexadecimal digits: the SHA-256 of the columns' types and values.

    Null is a value: ("a", null) and (null, "a") are different keys. A string is not a number: "1" and 1 are different
    keys. All integer types count as one type, so that a column that is widened keeps its keys.
    """
    from pyspark.sql import functions as F

    if not columns:
        raise BadDeclaration(where=declared_at(), problem="once.key needs at least one column")
    values = [F.col(column) if isinstance(column, str) else column for column in columns]
    types = [F.regexp_replace(F.typeof(value), _INTEGERS, "bigint") for value in values]
    numbered = F.struct(*(value.alias(str(number)) for number, value in enumerate(values)))
    return F.sha2(F.concat_ws("\n", *types, F.to_json(numbered, _JSON)), 256)
