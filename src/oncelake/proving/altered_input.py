"""Copies of a pipeline's input files that differ from them: part is missing, or values are other, rows gone and rows new."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oncelake.model.contracts import Reading
from oncelake.model.slices import Slice
from oncelake.sources.files import FilesSource
from oncelake.storage.paths import is_local

if TYPE_CHECKING:
    from oncelake.api import Project

_INTEGER, _DECIMAL = re.compile(r"-?\d{1,15}"), re.compile(r"-?\d{1,15}\.\d+")
# Added to whole numbers: far from the other keys of a small input, and not a round number, which `id % 100` would not see.
_FAR = 1007


def make_early_root(project: Project, name: str, slices: Sequence[Slice], root: Path) -> Path | None:
    """Create a project root that lacks part of the newest work's files; return None if that is not possible."""
    copied = [file for files in _copy_files(project, name, slices, root) for file in files]
    return root if copied and _withhold(copied) else None


def make_altered_roots(project: Project, name: str, slices: Sequence[Slice], root: Path, early: Path) -> Iterator[Path]:
    """Yield project roots with other input, the one that differs most first: its rows may not suit the pipeline."""
    # A file that is read for every slice is altered once.
    copied = {tuple(files) for files in _copy_files(project, name, slices, root)}
    if sum([any(map(_alter_file, files)) for files in copied]):
        yield root
    if make_early_root(project, name, slices, early):
        yield early


def _copy_files(project: Project, name: str, slices: Sequence[Slice], root: Path) -> Iterator[list[Path]]:
    """Copy the files that the slices read into another root, and yield those of each source and slice."""
    pipeline, folder = project.pipelines[name], project.settings.root
    for source in pipeline.reads.values():
        if not isinstance(source, FilesSource) or not is_local(source.path) or source.path.startswith("/"):
            continue
        for slice_ in slices:
            copied = []
            for found in source.found(Reading(name, slice_, pipeline.grid, project.lake, pipeline.where)):
                copied.append(root / Path(found.path).relative_to(folder))
                copied[-1].parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(found.path, copied[-1])
            yield copied


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


def _alter_file(file: Path) -> bool:
    """Change a value, leave out a row and add one; return whether the file could be changed."""
    try:
        if file.suffix == ".json":
            rows = [json.loads(line) for line in file.read_text().splitlines() if line.strip()]
            lines = [json.dumps(row) for row in alter_rows(rows)]
            file.write_text("".join(f"{line}\n" for line in lines))
        elif file.suffix == ".csv":
            header, *values = csv.reader(io.StringIO(file.read_text()))
            rows = [dict(zip(header, row, strict=True)) for row in values]
            with file.open("w", newline="") as out:
                csv.writer(out).writerows([header, *(row.values() for row in alter_rows(rows))])
        else:
            return False
    except (ValueError, AttributeError):  # not one object per line, or a row with other columns
        return False
    return True


def alter_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows as they might have been delivered wrongly: one has another value, the last is missing, one is new."""
    if len(rows) < 2:
        raise ValueError("too few rows")
    first = dict(rows[0])
    numbers = [name for name, value in first.items() if _other(value) != value]
    first |= {name: _other(first[name]) for name in numbers[-1:]}
    new = {name: _other(value) for name, value in rows[len(rows) // 2].items()}
    return [first, *map(dict, rows[1:-1]), new]


def _other(value: Any) -> Any:
    """Return another number; the value itself if it is no number."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value + _FAR
    if isinstance(value, float):
        return value * 2 + 1
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return str(int(value) + _FAR)
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        return str(float(value) * 2 + 1)
    return value
