"""What a plan and `status` say of a target whose grid, layout, keys or rows were declared otherwise when it was written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

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
    return [note for note in (*found, *replaced_notes(pipeline, pattern, log)) if note]


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
    former = [tuple(facts["keys"]) for facts in _own_facts(pipeline, pattern, log) if "keys" in facts]
    declared = {name.casefold() for name in pattern.keys}
    other = next((keys for keys in former if {name.casefold() for name in keys} != declared), None)
    if other is None:
        return None
    found, wanted = (", ".join(keys) for keys in (other, pattern.keys))
    redo = f"rows that were written by the former keys stay as they are until: oncelake rebuild {pattern.target}"
    return f"{pattern.target} contains works of {pipeline.name} by keys {found}, declared is {wanted}: {redo}"


def replaced_notes(pipeline: Pipeline, pattern: Pattern, log: Log) -> list[str]:
    """Return what to say if works, among the newest commits, replaced other rows than the declaration names.

    Rows of former works that the present declaration does not name are replaced by no work, a redone one neither.
    """
    declared = pattern.replaced_rows
    former = [_replaced(facts) for facts in _own_facts(pipeline, pattern, log)] if declared else []
    notes = []
    for option, wanted in declared.items():
        others = [facts[option] for facts in former if option in facts and not _includes(wanted, facts[option])]
        if others:
            found, now = (_spell(value) for value in (others[0], wanted))
            which = f"{pattern.target} contains works of {pipeline.name} with {option}={found}, declared is {now}"
            redo = (
                f"rows of the former {option}= stay, also after run --stale, until: oncelake rebuild {pattern.target}"
            )
            notes.append(f"{which}: {redo}")
    return notes


def _own_facts(pipeline: Pipeline, pattern: Pattern, log: Log) -> list[Mapping[str, Any]]:
    """Return the facts of the pipeline's works in a target, among the newest commits; redone works too."""
    names = {pipeline.name, *(pipeline.formerly or ())}
    facts = (facts for _, facts in log.newest_facts())
    return [each for each in facts if each.get("pipeline") in names and each.get("target") == pattern.target]


def _replaced(facts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return which rows a work replaced. Commits of earlier versions say the time column only."""
    cut_by = facts.get("cut_by")
    return {**({"time": cut_by[0]} if cut_by else {}), **(facts.get("replaces") or {})}


def _includes(wanted: Any, found: Any) -> bool:
    """Return whether all rows that a former work replaced are among those that the present declaration names."""
    if isinstance(wanted, str) and isinstance(found, str):
        return wanted.casefold() == found.casefold()
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        return all(name in found and set(found[name]) <= set(values) for name, values in wanted.items())
    if isinstance(wanted, list) and isinstance(found, list):
        return set(found) <= set(wanted)
    return bool(wanted == found)


def _spell(value: Any) -> str:
    if isinstance(value, Mapping):
        return "; ".join(f"{name}: {_spell(values)}" for name, values in value.items()) or "nothing"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(str, value))
    return "nothing" if value is None else str(value)


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
