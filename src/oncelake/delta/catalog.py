"""The session's catalog: targets become known to it by name, and a table that it knows is read by its path.

Writing stays by path. The catalog is asked for a path once; what it said is kept in the lake, so that `plan` needs no Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from oncelake.declare.catalog_tables import PREFIX, is_same_place
from oncelake.delta.conflicts import one_line
from oncelake.errors import NotInCatalog, OncelakeError, SourceUnreadable
from oncelake.spark.sql import identifier
from oncelake.storage.objects import storage, write_file
from oncelake.storage.paths import INTERNAL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The beginnings of the SQLSTATE of errors that say what is wrong with a name: no such table, or one of another kind.
_NOT_THERE = ("42", "0A")
_FILE = f"{INTERNAL}/catalog.json"


def register(session: SparkSession, name: str, path: str, warn: Callable[[str], None]) -> None:
    """Make a table known by name, with its path. Nothing depends on it: what goes wrong is a warning."""
    parts = name.split(".")
    if len(parts) != 2:
        warn(f"{name} is not registered: a catalog's table has a schema and a name, like silver.orders")
        return
    schema, table = map(identifier, parts)
    try:
        session.sql(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        session.sql(f"CREATE TABLE IF NOT EXISTS {schema}.{table} USING delta LOCATION {_text(path)}")
        if is_same_place(found := _location(session, f"{schema}.{table}"), path):
            return
        warn(f"{name} is not registered: the catalog has a table of that name at {found}")
    except Exception as error:  # noqa: BLE001  no metastore, no rights: the table itself is written all the same
        warn(f"{name} could not be registered: {one_line(error)}")


def known_locations(lake: str) -> dict[str, str]:
    """Return the paths of the catalog's tables that were asked for before, by name."""
    try:
        found = json.loads(storage(lake).read(_FILE))
    except (OSError, ValueError):
        return {}
    return {str(name): str(path) for name, path in found.items()} if isinstance(found, dict) else {}


def locate(session: SparkSession, names: Iterable[str], lake: str) -> dict[str, str]:
    """Ask the catalog for the paths of tables, like `catalog.silver.orders`, and keep them; raise NotInCatalog if one is not there."""
    found = {}
    for name in names:
        quoted = ".".join(map(identifier, name.removeprefix(PREFIX).split(".")))
        try:
            found[name] = _location(session, quoted)
        except Exception as error:
            raise _fault(name, error) from error
    known = {**known_locations(lake), **found}
    write_file(lake, _FILE, json.dumps(known, indent=1, sort_keys=True).encode())
    return known


def _fault(name: str, error: Exception) -> OncelakeError:
    """Return what is wrong if the catalog gives no path: there is no such table, or the catalog does not answer."""
    from pyspark.errors import PySparkException

    state = error.getSqlState() if isinstance(error, PySparkException) else None
    if isinstance(error, ValueError) or (state or "").startswith(_NOT_THERE):
        return NotInCatalog(table=name, problem=one_line(error))
    return SourceUnreadable(path=name, problem=f"the catalog does not answer: {one_line(error)}")


def _location(session: SparkSession, quoted: str) -> str:
    (row,) = session.sql(f"DESCRIBE DETAIL {quoted}").select("format", "location").collect()
    if row["format"] != "delta":
        raise ValueError(f"it is a {row['format']} table, not a Delta table")
    # Spark writes a path of this machine as file:/data/lake.
    return re.sub("^file:/+", "/", row["location"])


def _text(path: str) -> str:
    escaped = path.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
