"""Restate: an intended redo. The request is written into the targets' own logs first, so that any later run resumes it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from oncelake.declare.pipelines import Pipeline
from oncelake.delta.tables import require_log
from oncelake.errors import CannotRestate, NothingToRestate, StreamNotRedone
from oncelake.model.contracts import Log, Pattern, RangeWriter, Source, Stamp
from oncelake.model.coverage import clip, coalesce
from oncelake.model.failpoints import failpoint
from oncelake.model.intervals import Interval, covers
from oncelake.model.markers import Marker, restate_app_id
from oncelake.model.slices import Slice, Whole
from oncelake.model.work import LATE, RESTATED
from oncelake.planning.in_order import out_of_order
from oncelake.running.commit import Claim, commit_and_ask, commit_once
from oncelake.running.context import RunContext
from oncelake.running.invocation import find_invocation

LogOf = Callable[[str], Log | None]
# Looking up a work reads its commit file: more than these are not looked up.
_MOST_LOOKUPS = 100


@dataclass(frozen=True)
class RestateRequest:
    """A slice of a target to restate, up to a generation. `pending` if the log has the request already.

    It replaces what was written in `versions`, so many rows as far as the log says.
    """

    pipeline: str
    target: str
    slice: Slice
    generation: int
    pending: bool = False
    versions: tuple[int, ...] = ()
    rows: int | None = None
    # Whether the rows of the slice are replaced; else its batch is applied again, and rows it no longer has remain.
    replaces: bool = True
    # The files that are read again, where files drive the pipeline.
    files: int | None = None

    @property
    def marker(self) -> Marker:
        """The marker of the request in the target's log."""
        return Marker(restate_app_id(self.pipeline, self.target, self.slice), self.generation)

    def document(self) -> dict[str, Any]:
        """Return the request as `restate --dry-run --json` prints it."""
        return {
            "pipeline": self.pipeline,
            "target": self.target,
            "slice": str(self.slice),
            "generation": self.generation,
            "requested_before": self.pending,
            "versions": list(self.versions),
            "rows": self.rows,
            **({} if self.files is None else {"files": self.files}),
        }


def restate_requests(pipeline: Pipeline, span: Interval | None, logs: Mapping[str, Log | None]) -> list[RestateRequest]:
    """Return the requests that restate a pipeline over a span: one for every slice that is done.

    A request that is pending is returned as it is, so that the same command resumes it.
    """
    if pipeline.stream is not None:
        raise StreamNotRedone(verb="restate", target=pipeline.writes[0].target, pipeline=pipeline.name)
    assert pipeline.arrival is None
    found = [
        (pattern, log, slice_, generation)
        for pattern in pipeline.writes
        if (log := logs.get(pattern.target)) is not None
        for slice_, generation in _done(pipeline, pattern, log, span)
    ]
    for pattern, _, slice_, _ in found:
        if not pattern.restates:
            raise CannotRestate(target=pattern.target, pipeline=pipeline.name, slice=str(slice_))
    _refuse_older(pipeline, span, logs)
    request = [_requested(pipeline, pattern, log, slice_) for pattern, log, slice_, _ in found]
    waiting = [
        generation
        for (*_, done), generations in zip(found, request, strict=True)
        for generation in generations
        if generation > done
    ]
    wanted = max(waiting) if waiting else max((generation for *_, generation in found), default=0) + 1
    return [
        RestateRequest(
            pipeline.name,
            pattern.target,
            slice_,
            wanted,
            min(generations) >= wanted,
            *_replaced(pipeline, log, pattern, slice_),
            replaces=pattern.replaces,
        )
        for (pattern, log, slice_, done), generations in zip(found, request, strict=True)
        if done < wanted
    ]


def _refuse_older(pipeline: Pipeline, span: Interval | None, logs: Mapping[str, Log | None]) -> None:
    """Refuse to restate a span of a target that is written in order, if something newer is done."""
    for pattern in pipeline.writes:
        log = logs.get(pattern.target)
        if log is None or not pattern.ordered or span is None or pipeline.grid is None or pipeline.start is None:
            continue
        done = coalesce(pattern.done(log, pipeline.name, pipeline.start, pipeline.grid))
        if error := out_of_order(pipeline, pattern, span, done):
            raise error


@dataclass(frozen=True)
class Downstream:
    """A pipeline that reads what is restated: the time of it that is reached (None for all), if that is known beforehand.

    It is not known where rows are read by another time column than the one by which they are written: then the
    statistics of the commits decide, once they are there. `waits` if an upstream is planned only then, so that this
    pipeline would read its old rows if it was planned before.
    """

    pipeline: Pipeline
    span: Interval | None
    known: bool = True
    waits: bool = False

    @property
    def planned_first(self) -> bool:
        """Whether it can be planned together with what is restated, before anything is written."""
        return self.known and not self.waits

    @property
    def only(self) -> str:
        """Which of its works to plan: those that were requested, or those whose input has changed by then."""
        return RESTATED if self.known else LATE


def downstream_of(
    name: str, span: Interval | None, pipelines: Mapping[str, Pipeline], log_of: LogOf
) -> Iterator[Downstream]:
    """Yield the pipelines that read what one writes, and what reads theirs, upstream first.

    Only the logs of tables between them are asked for: one that cannot be read concerns nobody else.
    """
    reached: dict[str, Downstream] = {name: Downstream(pipelines[name], span)}
    for pipeline in pipelines.values():
        sources = [found for other, found in reached.items() if other != pipeline.name]
        touching = [found for found in sources if found.pipeline.writes_tables & pipeline.reads_tables]
        if touching:
            reached[pipeline.name] = _reach(pipeline, touching, log_of)
            yield reached[pipeline.name]


def _reach(pipeline: Pipeline, touching: list[Downstream], log_of: LogOf) -> Downstream:
    """Return the time of a pipeline that depends on what is restated upstream."""
    waits = not all(upstream.planned_first for upstream in touching)
    reads = {upstream.pipeline.name: _sources(pipeline, upstream.pipeline) for upstream in touching}
    if pipeline.grid is None or not all(source.by_interval for sources in reads.values() for source in sources):
        return Downstream(pipeline, None, waits=waits)
    spans = []
    for upstream in touching:
        same = all(_same_column(upstream.pipeline, pipeline, s, log_of) for s in reads[upstream.pipeline.name])
        if not upstream.known or not same:
            return Downstream(pipeline, None, known=False, waits=waits)
        spans.append(upstream.span and pipeline.grid.around(upstream.span))
    known = [span for span in spans if span is not None]
    if len(known) < len(spans):
        return Downstream(pipeline, None, waits=waits)
    whole = Interval(min(span.start for span in known), max(span.end for span in known), known[0].zone)
    return Downstream(pipeline, whole, waits=waits)


def _sources(reader: Pipeline, writer: Pipeline) -> list[Source]:
    """Return the sources of a pipeline that read what another one writes."""
    return [source for source in reader.reads.values() if writer.writes_tables & set(source.tables)]


def _same_column(writer: Pipeline, reader: Pipeline, source: Source, log_of: LogOf) -> bool:
    """Return whether rows are read by the column that cuts the writer's slices, so that a slice reaches the same time."""
    assert writer.grid is None or reader.grid is not None
    for table in set(source.tables) & writer.writes_tables:
        pattern = writer.pattern(table)
        column = pattern.cut_column(log_of(table)) if isinstance(pattern, RangeWriter) else None
        if column is None or source.time is None or column.casefold() != source.time.casefold():
            return False
        if writer.grid is None or reader.grid is None or writer.grid.zone != reader.grid.zone:
            return False
    return True


def request_restate(request: RestateRequest, context: RunContext) -> None:
    """Write the request into the target's log, in a commit without data: whoever runs next goes on with it."""
    table, session = context.lake.table(request.target), context.session()

    def act() -> None:
        if require_log(table).done(request.marker):
            return
        stamp = _stamp(request, context)
        commit_and_ask(
            lambda: table.mark(stamp, session),
            lambda: require_log(table).done(request.marker),
            request.target,
            command,
        )

    command, doing = f"oncelake restate {request.pipeline}", f"{request.pipeline} restate {request.slice}"
    commit_once(act, Claim([table], doing, command), context.lock_timeout)
    failpoint("requested")


def _stamp(request: RestateRequest, context: RunContext) -> Stamp:
    facts = {
        "pipeline": request.pipeline,
        "target": request.target,
        "slice": request.slice.text,
        "generation": request.generation,
        "run": context.run,
        "invocation": find_invocation().document(),
        "requested": True,
    }
    return Stamp(request.marker, json.dumps({"oncelake": facts}, separators=(",", ":")))


def refuse_never_done(pipeline: Pipeline, span: Interval | None, found: list[RestateRequest]) -> None:
    """Refuse to restate what was never done."""
    if not found:
        raise NothingToRestate(pipeline=pipeline.name, slice=str(span or Whole()))


def _done(pipeline: Pipeline, pattern: Pattern, log: Log, span: Interval | None) -> Iterator[tuple[Slice, int]]:
    """Yield what is done of a target in a span, and in which generation."""
    if pipeline.grid is None or pipeline.start is None:
        recorded = log.recorded(pattern.marker(pipeline.name, Whole(), 1).app_id)
        if recorded is not None:
            yield Whole(), recorded
        return
    coverage = pattern.done(log, pipeline.name, pipeline.start, pipeline.grid)
    # Of reloads only the last can be redone: the earlier ones are in nobody's table any more.
    there = [covered for covered in (clip(coverage, span) if span else coverage) if covered.generation]
    for generation, group in groupby(there, key=lambda covered: covered.generation):
        for part in coalesce(group):
            yield Interval(part.start, part.end, pipeline.grid.zone), generation


def _replaced(pipeline: Pipeline, log: Log, pattern: Pattern, slice_: Slice) -> tuple[tuple[int, ...], int | None]:
    """Return the versions in which a slice was written, and the number of rows; nothing where that takes too many lookups."""
    if isinstance(slice_, Interval):
        parts = clip(log.coverage(pipeline.name, pattern.target), slice_)
        # The rows of a range that is replaced in part are not counted by part.
        names = {part.name: part.name.endswith(f"/{part.start}..{part.end}") for part in parts}
    else:
        names = {pattern.marker(pipeline.name, slice_, 1).app_id: True}
    if len(names) > _MOST_LOOKUPS:
        return (), None
    commits = {name: commit for name in names if (commit := log.commit(name))}
    rows = [commit.rows.written if names[name] else None for name, commit in commits.items()]
    known = [count for count in rows if count is not None]
    total = sum(known) if len(known) == len(names) else None
    return tuple(sorted({commit.version for commit in commits.values()})), total


def _requested(pipeline: Pipeline, pattern: Pattern, log: Log, slice_: Slice) -> list[int]:
    """Return the generations that were requested before, all over a slice; 0 where none was."""
    if not isinstance(slice_, Interval):
        return [log.recorded(restate_app_id(pipeline.name, pattern.target, slice_)) or 0]
    coverage = clip(log.coverage(pipeline.name, pattern.target, requested=True), slice_)
    generations = [covered.generation for covered in coverage]
    return generations if covers(coalesce(coverage), slice_) else [*generations, 0]
