"""Who else wrote rows to a table that a stream adds to: other pipelines, `once.write`, and other tools."""

from __future__ import annotations

from collections.abc import Iterator

from oncelake.declare.pipelines import Pipeline
from oncelake.delta.commit_file import CommitFile
from oncelake.delta.log import TableLog
from oncelake.model.markers import RESTORE_PREFIX, parse_app_id, parse_stream
from oncelake.model.slices import Named
from oncelake.model.streams import StreamId
from oncelake.planning.quarantine import RETRY


def other_writers(pipeline: Pipeline, target: str, log: TableLog, project: str | None = None) -> list[str]:
    """Return who wrote rows that may still be in a table, besides the streams of a pipeline.

    Markers tell of all works; commits of other tools are known as far back as the log goes.
    """
    names = {pipeline.name, *(pipeline.formerly or ())}
    found = {other for name in log.markers if (other := _other_work(name, names, target))}
    return [*sorted(found), *_other_commits(log, project)]


def _other_work(app_id: str, names: set[str], target: str) -> str | None:
    """Return whose work a marker is, if it is not a batch of the pipeline's stream."""
    if app_id.startswith(RESTORE_PREFIX):
        return None
    if stream := parse_stream(app_id):
        ours = stream[0] in names and stream[1] == target and StreamId.parse(stream[2])
        return None if ours else f"the stream {stream[0]}"
    work = parse_app_id(app_id)
    if work is None:
        return f"another tool (transaction {app_id})"
    if isinstance(work[2], Named) and (work[0] == "repair" or (work[0] in names and str(work[2]).startswith(RETRY))):
        return None
    return f"once.write {work[0]}/{work[2]}" if isinstance(work[2], Named) else work[0]


def _other_commits(log: TableLog, project: str | None) -> Iterator[str]:
    """Yield the commits of other tools, and of other projects, since the table was last cleared."""
    for entry in log.history():
        if not log.in_lineage(entry.version):
            continue
        if "cleared" in entry.facts:
            return
        other = entry.facts.get("project")
        if project is not None and other not in (None, project):
            yield f"project {other} in version {entry.version}"
        if not entry.facts and _changes_rows(entry):
            yield f"version {entry.version} ({entry.info.get('operation', '?')})"


def _changes_rows(entry: CommitFile) -> bool:
    changes = (file for kind in ("add", "remove") for file in entry.actions(kind))
    return any(file.get("dataChange", True) for file in changes)
