"""Pin the schema of a source: declared, or inferred once from a sample; later it changes only by policy, and in steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from oncelake.errors import SchemaFrozen
from oncelake.model.contracts import Reading
from oncelake.sources.arrivals.current_files import full_path
from oncelake.sources.arrivals.discovery import partition_values
from oncelake.sources.arrivals.parsing.parse import parse
from oncelake.sources.arrivals.parsing.records import PackedFile
from oncelake.sources.arrivals.schema_evolution import evolve
from oncelake.sources.arrivals.schema_inference import Drift, apply_hints, drift_of, infer
from oncelake.sources.arrivals.schema_store import PinnedSchema
from oncelake.sources.arrivals.schema_types import normalize, parse_schema
from oncelake.sources.arrivals.target_columns import fixed_columns
from oncelake.sources.arrivals.work_list import LINES, entries_of, find_footers, large_files
from oncelake.storage.options import open_input

if TYPE_CHECKING:
    from oncelake.sources.arrivals.arriving import ArrivingFiles

# A schema is inferred from so many files, spread over the batch, and so many bytes of them.
_FILES, _BYTES = 200, 32 << 20
# Of a large file of lines, so many bytes.
_HEAD = 2 << 20


def first_schema(source: ArrivingFiles, pinned: PinnedSchema | None, files: pa.Table, reading: Reading) -> PinnedSchema:
    """Return the schema that a batch starts from: the pinned one with what is declared since, or else a declared or inferred one.

    Nothing is pinned yet: that is done when the files were read, by `SchemaStore.pin`.
    """
    declared = parse_schema(source.schema) if source.schema else None
    if pinned is None:
        first = declared if declared is not None else _infer(source, files, reading)
        reason = "declared" if declared is not None else "inferred from the first files"
        return PinnedSchema(1, first, reason)
    if declared is not None and any(name not in pinned.schema.names for name in declared.names):
        added = [field for field in declared if field.name not in pinned.schema.names]
        reason = f"declared: {', '.join(field.name for field in added)}"
        return PinnedSchema(pinned.version + 1, pa.schema([*pinned.schema, *added]), reason)
    return pinned


def evolve_schema(
    source: ArrivingFiles, pinned: PinnedSchema, drift: Sequence[Drift], reading: Reading
) -> PinnedSchema:
    """Return the schema after values that do not fit it: the same, or a new version with more or wider columns."""
    found = evolve(pinned, drift, source.policy, fixed_columns(reading) if drift else ())
    if found.refused:
        raise SchemaFrozen(
            pipeline=reading.pipeline, where=reading.where, slice=str(reading.slice), problem="; ".join(found.refused)
        )
    return found.following or pinned


def held_back(source: ArrivingFiles, pinned: PinnedSchema, drift: Sequence[Drift]) -> str | None:
    """Return how the types of columns would change if the tables of the pipeline could take it; None if they stay."""
    found = evolve(pinned, drift, source.policy).following
    return found.reason if found else None


def partition_drift(files: pa.Table) -> list[Drift]:
    """Return the columns that the folders of files name, like `region=EU`."""
    names: dict[str, int] = {}
    for path in files["path"].to_pylist():
        for name in partition_values(path) if "=" in path else ():
            names[name] = names.get(name, 0) + 1
    return [Drift(name, "string", count) for name, count in names.items()]


def _infer(source: ArrivingFiles, files: pa.Table, reading: Reading) -> pa.Schema:
    parsed = parse(list(_sample(source, files, reading)), source.file_format, pa.schema([]))
    found = drift_of(parsed.drift)
    if source.format == "parquet":
        found += _footer_drift(files, reading)
    schema = infer(found)
    return apply_hints(schema, parse_schema(source.hints)) if source.hints else schema


def _sample(source: ArrivingFiles, files: pa.Table, reading: Reading) -> Iterator[PackedFile]:
    """Yield some files; of a large file of lines those at its beginning."""
    step, left, root = max(1, files.num_rows // _FILES), _BYTES, reading.lake.file("")
    in_lines = large_files(files, source.split_by) if source.split_by == LINES else None
    for index in range(0, files.num_rows, step):
        path, size = full_path(files["path"][index].as_py(), root), files["size"][index].as_py()
        lines_only = in_lines is not None and in_lines[index].as_py()
        size = min(size, _HEAD) if lines_only else size
        if size > left:
            continue
        left -= size
        try:
            with open_input(path, None) as stream:
                content = stream.read(_HEAD) if lines_only else stream.read()
        except OSError:
            continue  # the executors will say what is wrong with it
        yield PackedFile(index, path, content[: content.rfind(b"\n") + 1] if lines_only else content)


def _footer_drift(files: pa.Table, reading: Reading) -> list[Drift]:
    """Return the columns of large files, which their footers name."""
    footers = find_footers(entries_of(files, reading.lake.file(""))[:_FILES])
    found = ((field, footer.rows) for footer in footers.values() for field in footer.schema)
    return [Drift(field.name, str(normalize(field.type)), rows) for field, rows in found]
