"""Making a sandbox ready for a job: where its tables will be, what it will be asked, and what it reads early and late."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncelake.contracts import Reading
from oncelake.errors import Misuse
from oncelake.lake.address import is_local
from oncelake.lake.session import session_defaults
from oncelake.proving.images import Folders
from oncelake.proving.laboratory import Subjected
from oncelake.proving.views import View, make_views
from oncelake.sources.files import FilesSource
from oncelake.work import Planned

if TYPE_CHECKING:
    from oncelake.api import Project

_WORKS = 3
_PATIENCE = 30  # seconds a run in the sandbox waits for another: a killed JVM is gone in two
_OPTIONS = {"date": "--date", "start": "--from", "end": "--to"}


def prepare_pipeline(
    project: Project, name: str, span: Mapping[str, Any], exclude: Mapping[str, Sequence[str]], sandbox: Path
) -> tuple[Subjected, Folders]:
    """A pipeline: its targets are written to a lake in the sandbox, whatever else it reads is read where it is."""
    lake, pipeline = sandbox / "lake", project.pipelines[name]
    now = span.get("now") or datetime.now(UTC)
    works = _works(project, name, span, now)
    inside = project.in_sandbox(str(lake), name).address
    spec = {
        "kind": "pipeline",
        "root": str(project.settings.root),
        "profile": project.profile,
        "name": name,
        "lake": str(lake),
        "patience": _PATIENCE,
        "now": now.isoformat(),
    }
    options = (f" {option} {span[key]}" for key, option in _OPTIONS.items() if span.get(key))
    job = Subjected(
        spec=spec,
        name=name,
        scope=" … ".join(dict.fromkeys((works[0].slice, works[-1].slice))),
        spans=tuple(dict.fromkeys((item.start, item.end) for item in works)),
        tables={table: Path(inside.table(table)) for table in sorted(pipeline.writes_tables)},
        replaces=all(pattern.replaces for pattern in pipeline.writes),
        restates=all(pattern.restates for pattern in pipeline.writes),
        may_fail=False,
        redoes=pipeline.grid is None,
        threads=True,
        early=partial(_early, project, name, works, sandbox / "early"),
        command=f"oncelake prove {shlex.quote(name)}{''.join(options)}",
        again=f"oncelake run {shlex.quote(name)}",
        exclude=exclude,
    )
    return job, Folders((str(lake),), (lake,))


def _works(project: Project, name: str, span: Mapping[str, Any], now: datetime) -> list[Planned]:
    """The works to prove on: those asked for, or else the newest that are done, or else the first there are."""
    asked = {key: span.get(key) for key in _OPTIONS}
    works = list(project.plan(name, **asked, now=now).works)  # type: ignore[arg-type]
    if not works:
        raise Misuse(message=f"nothing of {name} is due, so there is nothing to prove")
    if any(asked.values()):
        return works
    slices = list(dict.fromkeys(item.slice for item in works))
    undone = {item.slice for item in works if item.action != "skip"}
    done = [text for text in slices if text not in undone]
    chosen = done[-_WORKS:] or slices[:_WORKS]
    return [item for item in works if item.slice in chosen]


def _early(project: Project, name: str, works: Sequence[Planned], root: Path) -> Path | None:
    """A project root in which part of the newest work's files has not come yet; None where that cannot be shown."""
    pipeline, folder = project.pipelines[name], project.settings.root
    copied: list[Path] = []
    for source in pipeline.reads.values():
        if not isinstance(source, FilesSource) or not is_local(source.path) or source.path.startswith("/"):
            continue
        for item in works:
            reading = Reading(name, item.work.slice, pipeline.grid, project.address, pipeline.where)
            for found in source.found(reading):
                copied.append(root / Path(found.path).relative_to(folder))
                copied[-1].parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(found.path, copied[-1])
    return root if copied and _withhold(copied) else None


def _withhold(files: Sequence[Path]) -> bool:
    """Take the last file away or, of an only file, its second half if it is one of lines."""
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
) -> tuple[Subjected, Folders, list[View]]:
    """A script: the folders of its tables are shown to it as views in which only the sandbox is written."""
    paths = {table: Path(table).absolute().resolve() for table in tables}
    views, places = make_views(list(paths.values()), sandbox)
    for path, place in places.items():
        if path.exists():
            shutil.copytree(path, place, symlinks=True)
    spec = {
        "kind": "script",
        "script": str(script.absolute()),
        "arguments": list(arguments),
        "folder": str(Path.cwd()),
        "tables": {table: str(path) for table, path in paths.items()},
    }
    job = Subjected(
        spec=spec,
        name=script.name,
        scope=shlex.join(["python", script.name, *arguments]),
        spans=((None, None),),
        tables={table: places[path] for table, path in paths.items()},
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
    return job, Folders(tuple(map(str, paths.values())), tuple(places[path] for path in paths.values())), views


def spark_environment(sandbox: Path) -> dict[str, str]:
    """What lets a script that says nothing of Delta find it, as `spark-submit` would have; what it says itself wins."""
    conf = sandbox / "conf"
    conf.mkdir()
    lines = "".join(f"{key} {value}\n" for key, value in session_defaults().items())
    (conf / "spark-defaults.conf").write_text(lines)
    return {"SPARK_CONF_DIR": str(conf)}
