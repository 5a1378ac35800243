"""Prepare a sandbox for a job: the paths of its tables, the spans to run, and an input of which a part arrives late."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncelake.errors import ProverUnavailable, UsageError
from oncelake.model.intervals import Interval, instant_text
from oncelake.model.slices import Batch, Slice, cells
from oncelake.planning.in_order import is_ordered
from oncelake.proving.altered_input import make_altered_roots, make_early_root
from oncelake.proving.images import Folders
from oncelake.proving.stream_input import copy_stream_input
from oncelake.proving.testbed import SECOND, JobSpec
from oncelake.proving.views import View, make_views
from oncelake.spark.session import session_defaults

if TYPE_CHECKING:
    from oncelake.api import Project
    from oncelake.declare.pipelines import Pipeline
    from oncelake.delta.tables import Lake

_WORKS = 3
_LOCK_TIMEOUT = 30  # seconds; a killed JVM releases its lock within two
_OPTIONS = {"date": "--date", "start": "--from", "end": "--to"}
# Why scenarios are not tried on a pipeline that is driven by batches: the verdict says it.
_NO_INTERVALS = "batches are no intervals: they have one order, and no grid"
_NOT_REDONE = "a batch is not restated, and what arrived is not corrected"
_OF_BATCHES = {
    **dict.fromkeys(("order", "combine_intervals", "other_time", "grid_changed"), _NO_INTERVALS),
    **dict.fromkeys(("restate", "late", "corrected"), _NOT_REDONE),
    "reader": "how many batches a run takes is not known, so the tables between two of them are not known either",
}
_STATEFUL = "a query with state writes one target, whose state cannot be set back"


def prepare_pipeline(
    project: Project,
    name: str,
    span: Mapping[str, Any],
    exclude: Mapping[str, Sequence[str]],
    sandbox: Path,
    opened: ExitStack,
) -> tuple[JobSpec, Folders]:
    """Prepare a pipeline: its targets are written to a lake in the sandbox; other inputs are read in place.

    The input of a stream is copied; what must live as long as the proof is entered into `opened`.
    """
    _refuse_unprovable(project, name)
    lake, pipeline = sandbox / "lake", project.pipelines[name]
    now = span.get("now") or datetime.now(UTC)
    slices = _slices(project, name, span, now)
    inside = project.in_sandbox(str(lake), name).lake
    # What is written in the order of time waits for everything since the start, which the sandbox does not have.
    start = _span(slices[0])[0] if is_ordered(pipeline) else None
    options = (f" {option} {span[key]}" for key, option in _OPTIONS.items() if span.get(key))
    # What arrives is read in place; it has no intervals to restate.
    by_interval = not pipeline.by_batch
    copied = copy_stream_input(pipeline, project.lake, sandbox, opened) if pipeline.stream else {}
    job = JobSpec(
        spec={**_spec(project, name, lake, now, start), **copied},
        name=name,
        scope=" … ".join(dict.fromkeys((str(slices[0]), str(slices[-1])))),
        spans=tuple(_span(slice_) for slice_ in slices),
        tables={table: Path(inside.table(table).path) for table in sorted(pipeline.writes_tables)},
        replaces=all(pattern.replaces for pattern in pipeline.writes),
        restates=by_interval and all(pattern.restates for pattern in pipeline.writes),
        may_fail=False,
        redoes=by_interval and pipeline.grid is None,
        ordered=is_ordered(pipeline),
        threads=True,
        early=_early(project, name, slices, sandbox),
        altered=_altered(project, name, slices, sandbox),
        by_batch=not by_interval,
        is_stream=pipeline.stream is not None,
        not_tried=_not_tried(pipeline),
        second=_second_tables(project, pipeline, inside),
        command=f"oncelake prove {shlex.quote(name)}{''.join(options)}",
        again=f"oncelake run {shlex.quote(name)}",
        exclude=exclude,
    )
    return job, Folders((str(lake),), (lake,))


def _refuse_unprovable(project: Project, name: str) -> None:
    if not project.has_folder:
        raise ProverUnavailable(
            problem="a project made by Project.of has no folder to load it from", next="oncelake init"
        )
    if project.lake.remote:
        problem = "a Spark Connect server outlives the process that is killed"
        again = f"oncelake prove {shlex.quote(name)} --profile NAME, with a profile without spark.remote"
        raise ProverUnavailable(problem=problem, next=again)


def _spec(project: Project, name: str, lake: Path, now: datetime, start: str | None) -> dict[str, Any]:
    """Return what a worker needs to open the job."""
    return {
        "kind": "pipeline",
        "root": str(project.settings.root),
        "profile": project.profile,
        "name": name,
        "lake": str(lake),
        "lock_timeout": _LOCK_TIMEOUT,
        "now": now.isoformat(),
        "start": start,
    }


def _early(project: Project, name: str, slices: list[Slice], sandbox: Path) -> Callable[[], Path | None]:
    """Return what makes a root without part of its files; of what arrives, nothing is late."""
    if project.pipelines[name].by_batch:
        return lambda: None
    return partial(make_early_root, project, name, slices, sandbox / "early")


def _altered(project: Project, name: str, slices: list[Slice], sandbox: Path) -> Callable[[], Iterable[Path]]:
    """Return what makes roots with other input; what arrived once is not corrected."""
    if project.pipelines[name].by_batch:
        return tuple
    return partial(make_altered_roots, project, name, slices, sandbox / "altered", sandbox / "altered-early")


def _not_tried(pipeline: Pipeline) -> dict[str, str]:
    """Return the scenarios that say nothing of a pipeline, and why."""
    found = dict(_OF_BATCHES) if pipeline.by_batch else {}
    if pipeline.stateful:
        found |= dict.fromkeys(("restored", "second_target"), _STATEFUL)
    return found


def _second_tables(project: Project, pipeline: Pipeline, inside: Lake) -> dict[str, Path]:
    """Return the paths of a second table for each target; none if the project has a table of that name."""
    if pipeline.stateful:
        return {}
    known = {table for each in project.pipelines.values() for table in each.writes_tables | each.reads_tables}
    names = [f"{table}{SECOND}" for table in sorted(pipeline.writes_tables)]
    return {} if known & set(names) else {name: Path(inside.table(name).path) for name in names}


def _slices(project: Project, name: str, span: Mapping[str, Any], now: datetime) -> list[Slice]:
    """Return the slices to prove: the requested ones, else the newest finished ones, else the first ones."""
    requested = {key: span.get(key) for key in _OPTIONS}
    pipeline = project.pipelines[name]
    if pipeline.by_batch:
        return [Batch(pipeline.arrival.stream if pipeline.arrival else name, 0)]
    works = project.plan(name, **requested, now=now).works  # type: ignore[arg-type]
    if not works:
        raise UsageError(message=f"{name} has no work that is due, so there is nothing to prove")
    undone = {item.work.slice for item in works if item.action != "skip"}
    # Ranges are split: in a proof each interval is a work, and their range is a case of its own.
    grid = project.pipelines[name].grid
    slices = {cell: item.work.slice in undone for item in works for cell in cells(item.work.slice, grid)}
    if any(requested.values()):
        return list(slices)
    done = [slice_ for slice_, is_undone in slices.items() if not is_undone]
    return done[-_WORKS:] or list(slices)[:_WORKS]


def _span(slice_: Slice) -> tuple[str | None, str | None]:
    if not isinstance(slice_, Interval):
        return None, None
    return instant_text(slice_.start), instant_text(slice_.end)


def prepare_script(
    script: Path, tables: Sequence[str], arguments: Sequence[str], exclude: Mapping[str, Sequence[str]], sandbox: Path
) -> tuple[JobSpec, Folders, list[View]]:
    """Prepare a script: it sees the folders of its tables as views in which it writes only to the sandbox."""
    paths = {table: Path(table).absolute().resolve() for table in tables}
    views, copies = make_views(list(paths.values()), sandbox)
    for path, copy in copies.items():
        if path.exists():
            shutil.copytree(path, copy, symlinks=True)
    spec = {
        "kind": "script",
        "script": str(script.absolute()),
        "arguments": list(arguments),
        "folder": str(Path.cwd()),
        "tables": {table: str(path) for table, path in paths.items()},
    }
    job = JobSpec(
        spec=spec,
        name=script.name,
        scope=shlex.join(["python", script.name, *arguments]),
        spans=((None, None),),
        tables={table: copies[path] for table, path in paths.items()},
        replaces=False,
        restates=False,
        may_fail=True,
        redoes=False,
        threads=False,
        early=lambda: None,
        command=shlex.join(
            ["oncelake", "prove", "--script", str(script), *(p for t in tables for p in ("--table", t))]
        ),
        again=shlex.join(["python", str(script), *arguments]),
        arguments=tuple(arguments),
        exclude=exclude,
    )
    return job, Folders(tuple(map(str, paths.values())), tuple(copies[path] for path in paths.values())), views


def spark_environment(sandbox: Path) -> dict[str, str]:
    """Return variables that configure Delta for a script, as `spark-submit` would; the script's settings win."""
    conf = sandbox / "conf"
    conf.mkdir()
    lines = "".join(f"{key} {value}\n" for key, value in session_defaults().items())
    (conf / "spark-defaults.conf").write_text(lines)
    return {"SPARK_CONF_DIR": str(conf)}
