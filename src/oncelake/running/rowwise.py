"""Whether a function takes its rows one by one, as its plan shows: then a range of intervals can be computed at once.

Interval by interval is right for every function, but makes a plan as long as the range.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from oncelake.spark.jobs import watched

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_LINE = re.compile(r"(?P<stem>(?:   |:  )*(?P<side>[:+]- |))(?P<node>\w+) ?(?P<rest>.*)")
# What gives, for every row, rows that depend on no other row.
_BY_ROW = {"Project", "Filter", "Generate", "Sort", "Repartition", "RepartitionByExpression", "ResolvedHint"}
# Joins with something that does not depend on the interval, by the side on which the rows come in.
_JOINS = {":- ": ("Inner", "LeftOuter", "LeftSemi", "LeftAnti", "Cross"), "+- ": ("Inner", "RightOuter", "Cross")}


def rowwise(
    session: SparkSession, rows: DataFrame, time: str, called: Callable[[DataFrame], Mapping[str, DataFrame]]
) -> tuple[Mapping[str, DataFrame], Column] | None:
    """What a function makes of the rows of a range, and the time each came from; None where it may mix intervals.

    Its plan must lead from the source to every result through steps that take row by row, it must have asked Spark for
    nothing on the way, and the time of the source must still be there to be compared with that of the result.
    """
    from pyspark.errors import AnalysisException

    tag = uuid.uuid4().hex
    tagged = rows.where(f"'{tag}' = '{tag}'")
    with watched(session) as jobs:
        results = called(tagged)
    if jobs.ran or not all(is_rowwise(_plan(frame), tag) for frame in results.values()):
        return None
    try:
        for frame in results.values():
            frame.where(tagged[time].isNotNull())
    except AnalysisException:
        return None
    return results, tagged[time]


def is_rowwise(plan: str, tag: str) -> bool:
    """Whether the way from the tagged step up to the result of a plan takes row by row."""
    lines = plan.splitlines()
    steps = [_LINE.fullmatch(line) for line in lines]
    tagged = [number for number, line in enumerate(lines) if tag in line]
    if len(tagged) != 1 or None in steps:
        return False
    way = [step for step in steps[: tagged[0] + 1] if step]
    below = way.pop()
    while way:
        above = way.pop()
        if _depth(above) >= _depth(below):
            continue  # beside the way: it depends on no row of ours
        if _depth(above) < _depth(below) - 1 or not _takes_rows(above, below["side"]):
            return False
        below = above
    return _depth(below) == 0


def _depth(step: re.Match[str]) -> int:
    return len(step["stem"]) // 3


def _takes_rows(step: re.Match[str], side: str) -> bool:
    return step["node"] in _BY_ROW or (step["node"] == "Join" and step["rest"].split(",")[0] in _JOINS[side])


def _plan(frame: DataFrame) -> str:
    """The plan as Spark understood it. `explain` would optimize it too, for which Delta lists the files of the source."""
    return str(frame._jdf.queryExecution().analyzed().toString())  # noqa: SLF001
