"""Clean up files that were ingested: move them to an archive, or delete them, some days after their batch was committed.

It runs after the commits are recorded, batch by batch. Killed on the way, the next run goes on: a file that is gone already
is fine, and one that changed since it was ingested is left alone.
"""

from __future__ import annotations

import json
import posixpath
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from oncelake.errors import BadDeclaration
from oncelake.sources.arrivals.current_files import full_path, stamps
from oncelake.storage.objects import replace_file, storage
from oncelake.storage.options import arrow_file_system
from oncelake.storage.paths import is_local, local_path

if TYPE_CHECKING:
    from oncelake.model.contracts import Reading
    from oncelake.sources.arrivals.backlog import Backlog

_PROGRESS = "cleaned.json"


def clean_up(backlog: Backlog, now: datetime | None = None) -> int:
    """Archive or delete the files of batches that are old enough, and return how many."""
    source, manifests = backlog.source, backlog.manifests
    if source.clean_up == "keep":
        return 0
    now, count = now or datetime.now(UTC), 0
    recorded = set(manifests.recorded())
    for number in manifests.numbers(_cleaned_through(manifests.folder)):
        facts = manifests.load(number).facts
        frozen_at = facts.get("at")
        if (
            number not in recorded
            or frozen_at is None
            or now - datetime.fromisoformat(frozen_at) < source.clean_up_after
        ):
            break  # batches are done in their order
        outcomes = manifests.outcomes(number)
        assert outcomes is not None
        outcomes = outcomes.filter(pc.is_in(outcomes["state"], pa.array(["done", "duplicate"])))
        # The files of a retry are ours, and a redo needs them.
        kept = {*facts.get("origins", ()), *_in_quarantine(backlog, outcomes, max(recorded))}
        paths = outcomes["path"]
        count += _clean(backlog, outcomes.filter(pc.invert(pc.is_in(paths, value_set=pa.array(kept, pa.string())))))
        replace_file(manifests.folder, _PROGRESS, json.dumps({"through": number}).encode())
    return count


def _cleaned_through(folder: str) -> int:
    try:
        return int(json.loads(storage(folder).read(_PROGRESS))["through"])
    except (OSError, ValueError, KeyError):
        return -1  # it is only a short cut: what is gone already is skipped


def _in_quarantine(backlog: Backlog, outcomes: pa.Table, done: int) -> set[str]:
    """Return the files of which rows are in quarantine: they may have to be corrected and read again."""
    if not pc.any(pc.greater(pc.fill_null(outcomes["rows_quarantined"], 0), 0)).as_py():
        return set()
    return {row.file for row in backlog.source.list_quarantine(backlog.reading, done) if row.state == "quarantined"}


def _clean(backlog: Backlog, files: pa.Table) -> int:
    root, count = backlog.reading.lake.file(""), 0
    paths = files["path"].to_pylist()
    ingested = zip(files["size"].to_pylist(), files["modified"].to_pylist(), strict=True)
    places = [full_path(path, root) for path in paths]
    for path, place, then, found in zip(paths, places, ingested, stamps(places), strict=True):
        if found == then:
            _remove(place, _archived(backlog, path))
            count += 1
    return count


def refuse_tables(reading: Reading, archive: str) -> None:
    """Refuse an archive inside a table: a vacuum of the table would delete it."""
    lake, folder = reading.lake, posixpath.normpath(reading.lake.file(archive))
    targets = (posixpath.normpath(lake.table(pattern.target).path) for pattern in reading.writes)
    inside = any(f"{folder}/".startswith(f"{path}/") for path in targets)
    parents = [local_path(folder), *local_path(folder).parents] if is_local(folder) else []
    if inside or any((parent / "_delta_log").is_dir() for parent in parents):
        raise BadDeclaration(
            where=reading.where, problem=f"archive={archive!r} lies in a table, whose vacuum would delete it"
        )


def _archived(backlog: Backlog, path: str) -> str | None:
    """Return where a file goes; None if it is deleted."""
    if backlog.source.archive is None:
        return None
    name = path.partition("://")[2] or path
    return posixpath.join(backlog.reading.lake.file(backlog.source.archive), name.lstrip("/"))


def _remove(place: str, archived: str | None) -> None:
    if is_local(place) and (archived is None or is_local(archived)):
        if archived is None:
            local_path(place).unlink(missing_ok=True)
            return
        target = local_path(archived)
        target.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            local_path(place).rename(target)
        return
    store, name = arrow_file_system(place)
    if archived is not None:
        other, target_name = arrow_file_system(archived)
        with store.open_input_stream(name) as stream, other.open_output_stream(target_name) as output:
            while block := stream.read(1 << 20):
                output.write(block)
    store.delete_file(name)
