"""Compare what frames and Delta tables contain: `once.fingerprint` and `once.differences`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from oncelake.delta.log import read_log

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from oncelake.delta.fingerprint import Differences, Fingerprint


def fingerprint(
    content: DataFrame | str | Path,
    *,
    exclude: Iterable[str] = (),
    by: Iterable[str] = (),
    quick: bool = False,
    version: int | None = None,
) -> Fingerprint:
    """Return a hash of the rows of a frame, or of the Delta table at a path: equal for equal content, in any order.

    Only the columns in `exclude` are ignored. With `by`, or for a partitioned table, it also says which part differs.
    """
    from oncelake.delta import fingerprint as fingerprints
    from oncelake.delta.lake_session import open_lake_session

    if isinstance(content, str | Path):
        session = open_lake_session(str(content), {})
        return fingerprints.fingerprint_table(session, str(content), version=version, exclude=exclude, quick=quick)
    return fingerprints.fingerprint(content, exclude=exclude, by=by, quick=quick)


def differences(
    left: DataFrame | str | Path, right: DataFrame | str | Path, *, exclude: Iterable[str] = (), limit: int = 5
) -> Differences:
    """Return how two frames or Delta tables differ: the number of rows that only one of them has, and examples of each side."""
    from oncelake.delta import fingerprint as fingerprints

    return fingerprints.differences(_frame(left), _frame(right), exclude=exclude, limit=limit)


def _frame(content: DataFrame | str | Path) -> DataFrame:
    from oncelake.delta.lake_session import open_lake_session
    from oncelake.delta.writes import table_at

    if not isinstance(content, str | Path):
        return content
    return table_at(open_lake_session(str(content), {}), str(content), read_log(str(content), str(content)).version)
