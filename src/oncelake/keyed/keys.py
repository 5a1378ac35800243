"""`once.key`: a key made of other columns, the same on every run and every machine, so that nobody needs a sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oncelake.errors import BadDeclaration
from oncelake.model.source_location import declared_at

if TYPE_CHECKING:
    from pyspark.sql import Column

# Said in full, because what is not said here would be taken from the session.
_JSON = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "locale": "en-US",
    "dateFormat": "yyyy-MM-dd",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_WHOLE = "^(tinyint|smallint|int)$"


def key(*columns: str | Column) -> Column:
    """64 hexadecimal digits: the SHA-256 of the columns' types and values.

    Null is a value like any other: ("a", null) and (null, "a") are two keys. Text is not a number: "1" and 1 are two
    keys. Whole numbers of every width are one type, so that a column that becomes wider keeps its keys.
    """
    from pyspark.sql import functions as F

    if not columns:
        raise BadDeclaration(where=declared_at(), problem="once.key needs columns to make the key of")
    values = [F.col(column) if isinstance(column, str) else column for column in columns]
    kinds = [F.regexp_replace(F.typeof(value), _WHOLE, "bigint") for value in values]
    named = F.struct(*(value.alias(str(number)) for number, value in enumerate(values)))
    return F.sha2(F.concat_ws("\n", *kinds, F.to_json(named, _JSON)), 256)
