"""What a plan and `status` say of a target whose grid, layout or keys were declared otherwise when it was written."""

from __future__ import annotations

from datetime import datetime

from oncelake.declare.pipelines import Pipeline
from oncelake.model.contracts import Log, Pattern
from oncelake.model.coverage import Coverage
from oncelake.model.intervals import Grid

# A table may have a great many works; a changed grid shows in the oldest or the newest.
_LOOKED_AT = 500


def declaration_notes(pipeline: Pipeline, pattern: Pattern, log: Log | None) -> list[str]:
    """Return what differs between the declaration of a target and the table."""
    if log is None:
        return []
    found = (grid_note(pipeline, pattern, log), layout_note(pattern, log), keys_note(pipeline, pattern, log))
    return [note for note in found if note]


def layout_note(pattern: Pattern, log: Log) -> str | None:
    """Return what to say if the table has other partition columns than declared: they apply when a table is created."""
    declared, found = ([name.casefold() for name in names] for names in (pattern.partition_by, log.partitioned_by))
    if log.version < 0 or sorted(declared) == sorted(found):
        return None
    there, wanted = (", ".join(names) or "nothing" for names in (log.partitioned_by, pattern.partition_by))
    return f"{pattern.target} is partitioned by {there}, declared is {wanted}: partition_by= applies when a table is created"


def keys_note(pipeline: Pipeline, pattern: Pattern, log: Log) -> str | None:
    """Return what to say if works of the pipeline, among the newest commits, were written by other keys than declared."""
    if not pattern.keys:
        return None
    names = {pipeline.name, *(pipeline.formerly or ())}
    own = [facts for facts in log.newest_facts().values() if facts.get("pipeline") in names]
    former = [tuple(facts["keys"]) for facts in own if facts.get("target") == pattern.target and "keys" in facts]
    declared = {name.casefold() for name in pattern.keys}
    other = next((keys for keys in former if {name.casefold() for name in keys} != declared), None)
    if other is None:
        return None
    found, wanted = (", ".join(keys) for keys in (other, pattern.keys))
    redo = f"rows that were written by the former keys stay as they are until: oncelake rebuild {pattern.target}"
    return f"{pattern.target} contains works of {pipeline.name} by keys {found}, declared is {wanted}: {redo}"


def grid_note(pipeline: Pipeline, pattern: Pattern, log: Log) -> str | None:
    """Return what a plan and `status` say if works in a target have another grid than the pipeline has now."""
    if pipeline.grid is None or pipeline.start is None:
        return None
    done = pattern.done(log, pipeline.name, pipeline.start, pipeline.grid)
    looked_at = done if len(done) <= 2 * _LOOKED_AT else [*done[:_LOOKED_AT], *done[-_LOOKED_AT:]]
    if not any(_is_off(covered, pipeline.grid) for covered in looked_at):
        return None
    now = f"every {pipeline.grid.every}, {pipeline.grid.zone}"
    return f"{pattern.target} contains works of {pipeline.name} in intervals of another grid; the grid is now: {now}"


def _is_off(covered: Coverage, grid: Grid) -> bool:
    return not all(grid.is_boundary(datetime.fromisoformat(text)) for text in (covered.start, covered.end))
