"""Decide what would happen with each stretch of a target's time, by what its log says. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from oncelake.declare.pipelines import Pipeline
from oncelake.model.contracts import Log, Pattern, RangeWriter
from oncelake.model.coverage import Coverage, align, clip, coalesce, resolve_overlaps
from oncelake.model.intervals import Grid, Interval, instant_text, parse_interval, subtract
from oncelake.model.work import DONE, MISSING, RESTATED, STALE

# The name of a gap.
_GAP = ""
# Many neighbouring works reported as one range; no single commit is known for it.
_SEVERAL = "several"
# Which cause an interval has of those of its parts.
_CAUSES = (RESTATED, MISSING, STALE)
# Types of time columns whose values mean another instant in another time zone.
_WITHOUT_ZONE = ("date", "string", "timestamp_ntz")
_YEAR_ONE = datetime(1, 1, 1, tzinfo=UTC)


class StalePart(NamedTuple):
    """A part of what is done that is stale, and why: late or changed rows, or (not `late`) changed code."""

    start: str
    end: str
    why: str
    late: bool = True


Stale = Callable[[Pipeline, Pattern, Sequence[Coverage]], list[StalePart]]


class Decision(NamedTuple):
    """What would happen with a stretch of time of one target, and why. What is done has the app id of its marker."""

    start: str
    end: str
    action: str
    generation: int
    why: str
    cause: str = MISSING
    app_id: str | None = None
    # Part of an interval that is to do was done, in intervals of another grid.
    partly_done: bool = False
    # Its rows have the dates of another time zone: to replace it alone would remove rows of its neighbours.
    other_zone: bool = False


def decide(  # noqa: PLR0913  the three last are keyword arguments with defaults
    pipeline: Pipeline,
    pattern: Pattern,
    span: Interval,
    log: Log | None,
    stale: Stale,
    *,
    redo_stale: bool = False,
    redo_late: bool = False,
    single_works: int = 1000,
) -> list[Decision]:
    """Return what would happen with a target all over a span, in the order of time.

    With `redo_stale` stale works are reprocessed, with `redo_late` those whose inputs changed. More works than `single_works` are reported as few ranges.
    """
    if log is None or pipeline.grid is None or pipeline.start is None:
        return [Decision(instant_text(span.start), instant_text(span.end), "run", 1, "not done yet")]
    recorded = pattern.done(log, pipeline.name, pipeline.start, pipeline.grid)
    done, newest = clip(recorded, span), recorded[-1].end if recorded else ""
    requested = clip(log.coverage(pipeline.name, pattern.target, requested=True), span)
    parts = stale(pipeline, pattern, done)
    works = _bundle(done) if len(done) > single_works else done
    gaps = subtract([span], coalesce(works))
    blank = [Coverage(instant_text(gap.start), instant_text(gap.end), 0, _GAP) for gap in gaps]
    rows: tuple[Sequence[Any], ...] = (resolve_overlaps([*works, *blank]), requested, parts)
    found = [
        _decide(
            covered._replace(start=start, end=end),
            request,
            part,
            pattern,
            redo_stale or (part is not None and part.late and (redo_late or is_late(pipeline, end, span.end))),
            # Late rows of an older slice alone would set its keys back; only what is asked for is refused, not shown.
            older=pattern.ordered and end < newest and not (redo_stale or redo_late),
        )
        for start, end, (covered, request, part) in align(*rows)
        if covered is not None
    ]
    found = _on_grid(_reapply(found, done, log), pipeline.grid, pattern)
    other_zone = _cut_in_other_zone(recorded, pipeline, pattern, log)
    return _flag_other_zone(found, other_zone, pipeline.grid) if other_zone else found


def _decide(
    covered: Coverage,
    request: Coverage | None,
    part: StalePart | None,
    pattern: Pattern,
    redo: bool,
    *,
    older: bool = False,
) -> Decision:
    """Decide about a stretch of one kind: a gap, done by a marker, requested again, or stale."""
    start, end, generation, name = covered
    wanted, app_id = request.generation if request else 1, None if name == _SEVERAL else name
    if name == _GAP:
        return Decision(start, end, "run", wanted, "not done yet")
    if not generation:
        return Decision(start, end, "skip", 1, "a later interval's reload is in place", DONE, app_id)
    if wanted > generation:
        return Decision(start, end, "run", wanted, f"restated: generation {wanted} was requested", RESTATED)
    if part is None:
        return Decision(start, end, "skip", generation, "done", DONE, app_id)
    if pattern.restates and redo and not older:
        return Decision(start, end, "run", generation + 1, f"stale: {part.why}", STALE)
    cannot = "" if pattern.restates else f"; {pattern.kind} cannot be restated"
    cannot = f"; redone in the order of time only: oncelake rebuild {pattern.target}" if older else cannot
    return Decision(start, end, "skip", generation, f"done, but stale: {part.why}{cannot}", STALE, app_id)


def _reapply(decisions: list[Decision], done: Sequence[Coverage], log: Log) -> list[Decision]:
    """Return the decisions, where works that were overtaken are applied once more, in their generation."""
    versions = {covered: log.overtaken_version(covered.name) for covered in done} if log.overtaken else {}
    overtaken = [covered for covered, version in versions.items() if version is not None]
    if not overtaken:
        return decisions
    rows: tuple[Sequence[Any], ...] = (decisions, overtaken)
    return [
        decision._replace(start=start, end=end)
        if covered is None or decision.action == "run"
        else Decision(start, end, "run", covered.generation, overtaken_note(versions[covered]), RESTATED)
        for start, end, (decision, covered) in align(*rows)
        if decision is not None
    ]


def overtaken_note(version: int | None) -> str:
    """Return why a work that is committed is applied once more."""
    return f"to be applied once more: another commit came between its read and version {version}"


def _bundle(coverage: Sequence[Coverage]) -> list[Coverage]:
    """Return neighbours of one generation as one."""
    found: list[Coverage] = []
    first = last = coverage[0]
    for covered in coverage[1:]:
        if last.end != covered.start or last.generation != covered.generation:
            found.append(Coverage(first.start, last.end, first.generation, _SEVERAL))
            first = covered
        last = covered
    return [*found, Coverage(first.start, last.end, first.generation, _SEVERAL)]


def is_late(pipeline: Pipeline, end: str, until: datetime) -> bool:
    """Return whether `run` reprocesses late rows in a stretch that ends there, of all up to a moment."""
    if pipeline.lookback is None:
        return False
    return pipeline.lookback > until - _YEAR_ONE or end > instant_text(until - pipeline.lookback)


def _on_grid(decisions: list[Decision], grid: Grid, pattern: Pattern) -> list[Decision]:
    """Return decisions without a gap between them in intervals of the grid, wherever markers, requests or rows lie off it."""
    if all(grid.is_boundary(datetime.fromisoformat(each.end)) for each in decisions):
        return decisions
    parts = [part for decision in decisions for part in _cut(decision, grid)]
    cells = groupby(parts, key=lambda part: grid.floor(datetime.fromisoformat(part.start)))
    return [_merge(list(group), pattern) for _, group in cells]


def _cut_in_other_zone(recorded: Sequence[Coverage], pipeline: Pipeline, pattern: Pattern, log: Log) -> list[Interval]:
    """Return the time that was done in another time zone, if the table is cut by a column whose values have none."""
    column = pattern.cut_column(log) if isinstance(pattern, RangeWriter) else None
    kind = next((kind for name, kind in log.schema.items() if column and name.casefold() == column.casefold()), None)
    if kind not in _WITHOUT_ZONE or pipeline.grid is None or pipeline.start is None:
        return []
    days, first = Grid("day", pipeline.grid.zone), instant_text(pipeline.start)
    markers = {covered.name: parse_interval(covered.name.rpartition("/")[2]) for covered in recorded}
    off = {name for name, cut in markers.items() if not (days.is_boundary(cut.start) and days.is_boundary(cut.end))}
    if kind == "timestamp_ntz":
        # Hours of the same zone are not midnights either: the commit says in which zone it was cut.
        off = {name for name in off if _zone_of(name, log) not in (None, days.zone)}
    found = [covered for covered in recorded if covered.name in off and covered.end > first]
    return coalesce(covered._replace(start=max(covered.start, first)) for covered in found)


def _zone_of(name: str, log: Log) -> str | None:
    commit = log.commit(name)
    cut_by = commit.facts.get("cut_by") if commit else None
    return cut_by[1] if cut_by else None


def _flag_other_zone(decisions: list[Decision], other_zone: list[Interval], grid: Grid) -> list[Decision]:
    """Flag what is to do where works of another time zone are, unless all of those are redone.

    That is certain if all were requested, because a request stays until it is done, or if they lie in one interval.
    """
    times = [(each, parse_interval(f"{each.start}..{each.end}")) for each in decisions if each.action == "run"]
    touching = [(each, time) for each, time in times if any(time.overlaps(other) for other in other_zone)]
    certain = all(each.cause == RESTATED for each, _ in touching) or sum(grid.count(time) for _, time in touching) == 1
    if certain and not subtract(other_zone, [time for _, time in touching]):
        return decisions
    flagged = {each for each, _ in touching}
    return [each._replace(other_zone=True) if each in flagged else each for each in decisions]


def _cut(decision: Decision, grid: Grid) -> Iterator[Decision]:
    """Cut a decision at the first and the last grid line in it: between them are whole intervals."""
    start, end = datetime.fromisoformat(decision.start), datetime.fromisoformat(decision.end)
    first = start if grid.is_boundary(start) else grid.after(grid.floor(start))
    lines = [
        decision.start,
        *(instant_text(line) for line in (first, grid.floor(end)) if start < line < end),
        decision.end,
    ]
    for one, other in pairwise(lines):
        if one < other:
            yield decision._replace(start=one, end=other)


def _merge(parts: Sequence[Decision], pattern: Pattern) -> Decision:
    """Return one decision for the parts of an interval: done if all are, else to do in a generation above all of them."""
    if len(parts) == 1:
        return parts[0]
    start, end = parts[0].start, parts[-1].end
    to_do = [part for part in parts if part.action == "run"]
    done = [part for part in parts if part.action == "skip"]
    if not to_do:
        said = next((part for part in parts if part.cause == STALE), parts[-1])
        generation = min(part.generation for part in parts)
        return said._replace(generation=generation, app_id=parts[-1].app_id, start=start, end=end)
    said = min(to_do, key=lambda part: _CAUSES.index(part.cause))
    generation = max(part.generation for part in to_do)
    if not done:
        return said._replace(generation=generation, start=start, end=end)
    if pattern.restates:
        generation = max(generation, *(part.generation + 1 for part in done))
    why = f"{said.why}; part of it was done in intervals of another grid"
    return said._replace(generation=generation, why=why, partly_done=True, start=start, end=end)
