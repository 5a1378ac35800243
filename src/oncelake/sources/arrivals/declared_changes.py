"""What a plan says of a declaration that is not the one by which files were ingested so far."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from oncelake.model.arrivals import Waiting
from oncelake.model.contracts import Reading
from oncelake.sources.arrivals.backlog import folder_of
from oncelake.sources.arrivals.discovery import stored_prefix
from oncelake.sources.arrivals.manifests import Manifests
from oncelake.sources.arrivals.schema_inference import match_name
from oncelake.sources.arrivals.schema_store import SchemaStore
from oncelake.sources.arrivals.schema_types import parse_schema, type_name

if TYPE_CHECKING:
    from oncelake.sources.arrivals.arriving import ArrivingFiles


def declared_changes(source: ArrivingFiles, reading: Reading, waiting: Waiting) -> Iterator[str]:
    """Yield notes of another path, which makes every file a new one, and of other types, which are ignored."""
    folder = folder_of(reading)
    if any(not batch.frozen for batch in waiting.batches):
        yield from _other_path(source, reading, Manifests(folder))
    if source.schema or source.hints:
        yield from _other_types(source, SchemaStore(folder), {batch.number for batch in waiting.batches})


def _other_path(source: ArrivingFiles, reading: Reading, manifests: Manifests) -> Iterator[str]:
    numbers = manifests.numbers()
    before = manifests.load(numbers[-1]).facts.get("path") if numbers else None
    if not isinstance(before, str) or before == source.path:
        return
    root = reading.lake.file("")
    old, new = (stored_prefix(reading.lake.file(path), root) for path in (before, source.path))
    if not new.startswith(old) and not old.startswith(new):
        yield (
            f"{reading.pipeline}: files arrived in {before!r} until batch {numbers[-1]}, and {source.path!r} is declared now: "
            "a file with another path is a new file, also if it was ingested before under its old path"
        )


def _other_types(source: ArrivingFiles, store: SchemaStore, undone: set[int]) -> Iterator[str]:
    try:
        pinned = store.newest()
    except ValueError:  # a damaged file; who reads by it says so
        return
    if pinned is None or pinned.batch in undone:  # what a batch pinned that is not done does not bind it
        return
    for option, text in (("schema", source.schema), ("hints", source.hints)):
        for field in parse_schema(text) if text else ():
            name = match_name(pinned.schema.names, field.name)
            known = pinned.schema.field(name).type if name else field.type
            if known != field.type:
                yield (
                    f"{option}= declares {field.name} as {type_name(field.type)}, but it is pinned as {type_name(known)} "
                    f"(version {pinned.version}), and read as such: cast it in the function, or declare {type_name(known)}"
                )
