"""Prepare a sandbox for a job: the paths of its tables, the spans to run, and an input of which a part arrives late."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncelake.errors import ProverUnavailable, UsageError
from oncelake.model.contracts import Reading
from oncelake.model.intervals import Interval, instant_text
from oncelake.model.slices import Slice, cells
from oncelake.planning.in_order import is_ordered
from oncelake.proving.images import Folders
from oncelake.proving.testbed import JobSpec
from oncelake.proving.views import View, make_views
from oncelake.sources.files import FilesSource
from oncelake.spark.session import session_defaults
from oncelake.storage.paths import is_local

if TYPE_CHECKING:
    from oncelake.api import Project

_WORKS = 3
_LOCK_TIMEOUT = 30  # seconds; a killed JVM releases its lock within two
_OPTIONS = {"date": "--date", "start": "--from", "end": "--to"}


def prepare_pipeline(
    project: Project, name: str, span: Mapping[str, Any], exclude: Mapping[str, Sequence[str]], sandbox: Path
) -> tuple[JobSpec, Folders]:
    """Prepare a pipeline: its targets are written to a lake in the sandbox; other inputs are read in place."""
    if not project.has_folder:
        raise ProverUnavailable(
            problem="a project made by Project.of has no folder to load it from", next="oncelake init"
        )
    lake, pipeline = sandbox / "lake", project.pipelines[name]
    now = span.get("now") or datetime.now(UTC)
    slices = _slices(project, name, span, now)
    inside = project.in_sandbox(str(lake), name).lake
    spec = {
        "kind": "pipeline",
        "root": str(project.settings.root),
        "profile": project.profile,
        "name": name,
        "lake": str(lake),
        "lock_timeout": _LOCK_TIMEOUT,
        "now": now.isoformat(),
        # What is written in the order of time waits for everything since the start, which the sandbox does not have.
        "start": _span(slices[0])[0] if is_ordered(pipeline) else None,
    }
    options = (f" {option} {span[key]}" for key, option in _OPTIONS.items() if span.get(key))
    job = JobSpec(
        spec=spec,
        name=name,
        scope=" … ".join(dict.fromkeys((str(slices[0]), str(slices[-1])))),
        spans=tuple(_span(slice_) for slice_ in slices),
        tables={table: Path(inside.table(table).path) for table in sorted(pipeline.writes_tables)},
        replaces=all(pattern.replaces for pattern in pipeline.writes),
        restates=all(pattern.restates for pattern in pipeline.writes),
        may_fail=False,
        redoes=pipeline.grid is None,
        ordered=is_ordered(pipeline),
        threads=True,
        early=partial(_make_early_root, project, name, slices, sandbox / "early"),
        command=f"oncelake prove {shlex.quote(name)}{''.join(options)}",
        again=f"oncelake run {shlex.quote(name)}",
        exclude=exclude,
    )
    return job, Folders((str(lake),), (lake,))


def _slices(project: Project, name: str, span: Mapping[str, Any], now: datetime) -> list[Slice]:
    """Return the slices to prove: the requested ones, else the newest finished ones, else the first ones."""
    requested = {key: span.get(key) for key in _OPTIONS}
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


def _make_early_root(project: Project, name: str, slices: Sequence[Slice], root: Path) -> Path | None:
    """Create a project root that lacks part of the newest work's files; return None if that is not possible."""
    pipeline, folder = project.pipelines[name], project.settings.root
    copied: list[Path] = []
    for source in pipeline.reads.values():
        if not isinstance(source, FilesSource) or not is_local(source.path) or source.path.startswith("/"):
            continue
        for slice_ in slices:
            reading = Reading(name, slice_, pipeline.grid, project.lake, pipeline.where)
            for found in source.found(reading):
                copied.append(root / Path(found.path).relative_to(folder))
                copied[-1].parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(found.path, copied[-1])
    return root if copied and _withhold(copied) else None


def _withhold(files: Sequence[Path]) -> bool:
    """Delete the last file or, if it is the only one, the second half of its lines; return whether that worked."""
    last = files[-1]
    if sum(file.parent == last.parent for file in files) > 1:
        last.unlink()
        return True
    lines = last.read_bytes().splitlines(keepends=True) if last.suffix in (".json", ".csv") else []
    if len(lines) < 3:
        return False
    last.write_bytes(b"".join(lines[: len(lines) // 2 + 1]))
    return True


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
