"""Decide whether a function is row-wise, from its query plan: then a range of intervals is computed in one pass.

Computing interval by interval is right for every function, but its plan grows with the range.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from oncelake.spark.jobs import watch_jobs

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_LINE = re.compile(r"(?P<stem>(?:   |:  )*(?P<side>[:+]- |))(?P<node>\w+) ?(?P<rest>.*)")
# Nodes whose output rows each depend on one input row.
_BY_ROW = {"Project", "Filter", "Sort", "Repartition", "RepartitionByExpression", "ResolvedHint"}
_GENERATORS = re.compile(r"(pos)?explode\(|inline\(|stack\(|json_tuple\(")
# Joins with a side that does not depend on the interval, by the side on which the rows come in.
_JOINS = {":- ": ("Inner", "LeftOuter", "LeftSemi", "LeftAnti", "Cross"), "+- ": ("Inner", "RightOuter", "Cross")}
# Nodes of a source that is filtered by time and by nothing else.
_SCAN = {"Project", "Filter", "SubqueryAlias", "Relation", "RelationV2"}
# Expressions that may see a batch of rows, keep a state between rows, or change from query to query.
_UNSAFE = ("PYTHON_UDF", "SCALA_UDF", "CURRENT_LIKE")


def rowwise(
    session: SparkSession, rows: DataFrame, time: str, transform: Callable[[DataFrame], Mapping[str, DataFrame]]
) -> tuple[Mapping[str, DataFrame], Column] | None:
    """Return the frames for the rows of a range and the source time of each row; None unless it is certainly safe.

    The source must be a scan, the plan must lead from the source to every frame through row-wise and deterministic
    steps, the function must not have run a Spark job, and the source time must still be available for comparison.
    """
    from pyspark.errors import AnalysisException

    if not hasattr(rows, "_jdf") or not is_scan(str(_analyzed(rows).toString())):  # Spark Connect shows no plan
        return None
    tag = uuid.uuid4().hex
    tagged = tag_rows(rows, tag)
    with watch_jobs(session) as jobs:
        results = transform(tagged)
    if jobs.ran or not all(_is_safe(frame, tag) for frame in results.values()):
        return None
    try:
        for frame in results.values():
            frame.where(tagged[time].isNotNull())
    except AnalysisException:
        return None
    return results, tagged[time]


def tag_rows(rows: DataFrame, tag: str) -> DataFrame:
    """Return the rows with a tag in their plan, by which `keeps_rows` finds them."""
    return rows.where(f"'{tag}' = '{tag}'")


def keeps_rows(frame: DataFrame, tag: str) -> bool:
    """Return whether a frame has one row for every tagged row, because it is certain that they are only projected."""
    plan = str(_analyzed(frame).toString())
    above = plan.partition(tag)[0].splitlines()[:-1]
    return is_rowwise(plan, tag) and all(line.lstrip(" :+-").startswith("Project ") for line in above)


def is_scan(plan: str) -> bool:
    """Return whether a plan reads and filters a relation and does nothing across rows."""
    steps = [_LINE.fullmatch(line) for line in plan.splitlines()]
    return all(step is not None and step["node"] in _SCAN for step in steps)


def is_rowwise(plan: str, tag: str) -> bool:
    """Return whether every node from the tagged filter up to the root of a plan is row-wise."""
    lines = plan.splitlines()
    steps = [_LINE.fullmatch(line) for line in lines]
    tagged = [number for number, line in enumerate(lines) if tag in line]
    if len(tagged) != 1 or None in steps:
        return False
    path = [step for step in steps[: tagged[0] + 1] if step]
    below = path.pop()
    while path:
        above = path.pop()
        if _depth(above) >= _depth(below):
            continue  # another branch, which depends on no row of the source
        if _depth(above) < _depth(below) - 1 or not _takes_rows(above, below["side"]):
            return False
        below = above
    return _depth(below) == 0


def _is_safe(frame: DataFrame, tag: str) -> bool:
    plan, patterns = _analyzed(frame), frame.sparkSession.sparkContext._jvm.org.apache.spark.sql.catalyst.trees  # type: ignore[union-attr]  # noqa: SLF001
    unsafe = (getattr(patterns.TreePattern, name)() for name in _UNSAFE)
    return (
        is_rowwise(str(plan.toString()), tag)
        and bool(plan.deterministic())
        and not any(plan.containsPattern(pattern) for pattern in unsafe)
    )


def _depth(step: re.Match[str]) -> int:
    return len(step["stem"]) // 3


def _takes_rows(step: re.Match[str], side: str) -> bool:
    if step["node"] == "Join":
        return step["rest"].split(",")[0] in _JOINS[side]
    return step["node"] in _BY_ROW or (step["node"] == "Generate" and _GENERATORS.match(step["rest"]) is not None)


def _analyzed(frame: DataFrame) -> Any:
    """Return the analyzed plan. `explain` would optimize it too, for which Delta lists the files of the source."""
    return frame._jdf.queryExecution().analyzed()  # noqa: SLF001
