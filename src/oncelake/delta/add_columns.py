"""The `add` actions of a checkpoint as Arrow columns, in batches: statistics of a million files need not fit into memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from oncelake.delta.arrays import scalar_of

# Rows that are decoded at a time; statistics are long.
_BATCH_ROWS, _STATISTICS_ROWS = 32 * 1024, 8 * 1024
_FIELDS = {
    "path": pa.string(),
    "size": pa.int64(),
    "modificationTime": pa.int64(),
    "partitionValues": pa.map_(pa.string(), pa.string()),
    "deletionVector": pa.struct(
        [
            ("storageType", pa.string()),
            ("pathOrInlineDv", pa.string()),
            ("offset", pa.int32()),
            ("cardinality", pa.int64()),
        ]
    ),
    "stats": pa.string(),
}
# All fields but the statistics, which are long and read only where they are asked for.
FILE_FIELDS = tuple(name for name in _FIELDS if name != "stats")


def adds_of_json(content: bytes, fields: Sequence[str]) -> pa.RecordBatch:
    """Return some fields of the `add` actions in the lines of a checkpoint."""
    adds = [action["add"] for line in content.splitlines() if "add" in (action := json.loads(line))]
    values = {name: [add.get(name) for add in adds] for name in fields}
    if "partitionValues" in values:
        values["partitionValues"] = [list((each or {}).items()) for each in values["partitionValues"]]
    return _batch({name: pa.array(values[name], _FIELDS[name]) for name in fields})


def adds_of_parquet(source: Any, fields: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield some fields of the `add` actions in a file of a checkpoint; fields that it lacks are null."""
    # Whole columns are read ahead only where each part of a file is a request.
    with parquet.ParquetFile(source, pre_buffer=not isinstance(source, str | pa.BufferReader)) as file:
        schema = file.schema_arrow
        if "add" not in schema.names:
            return
        known = schema.field("add").type.names
        columns = [f"add.{name}" for name in fields if name in known] or ["add.path"]
        rows = _STATISTICS_ROWS if "stats" in fields else _BATCH_ROWS
        for batch in file.iter_batches(batch_size=rows, columns=columns, use_threads=False):
            # A row contains one action: where `add` is null, it is another one.
            adds = batch.column("add")
            adds = adds.drop_null() if adds.null_count else adds
            yield _batch({name: _field(adds, name) for name in fields})


def file_columns(adds: pa.RecordBatch, partitioned_by: Mapping[str, str]) -> pa.Table:
    """Return the columns of files from their actions: fields and, under the given names, partition values."""
    vectors, values = adds.column("deletionVector"), adds.column("partitionValues")
    columns = {
        "path": adds.column("path"),
        "size": adds.column("size"),
        "modified": adds.column("modificationTime"),
        "vector": _vector_ids(vectors),
        "deleted": pc.fill_null(_child(vectors, "cardinality", pa.int64()), scalar_of(0, pa.int64())),
    }
    for name, column in partitioned_by.items():
        found = pc.map_lookup(values, scalar_of(name, values.type.key_type), "first")
        columns[column] = found.cast(pa.string())
    return pa.table(columns)


def vector_id(vector: Mapping[str, Any] | None) -> str | None:
    """Return what identifies a deletion vector."""
    if not vector or vector.get("pathOrInlineDv") is None:
        return None
    offset = vector.get("offset")
    return f"{vector.get('storageType') or ''}@{vector['pathOrInlineDv']}@{'' if offset is None else offset}"


def _vector_ids(vectors: pa.StructArray) -> pa.Array:
    """Return `vector_id` of each."""
    if vectors.null_count == len(vectors):
        return pa.nulls(len(vectors), pa.string())
    storage, path, offset = (_child(vectors, name, pa.string()) for name in ("storageType", "pathOrInlineDv", "offset"))
    nothing, separator = scalar_of("", pa.string()), scalar_of("@", pa.string())
    return pc.binary_join_element_wise(pc.fill_null(storage, nothing), path, pc.fill_null(offset, nothing), separator)


def _field(adds: pa.StructArray, name: str) -> pa.Array:
    if pa.types.is_nested(_FIELDS[name]) and name in adds.type.names:
        return pc.struct_field(adds, name)
    return _child(adds, name, _FIELDS[name])


def _child(struct: pa.StructArray, name: str, type_: pa.DataType) -> pa.Array:
    return pc.struct_field(struct, name).cast(type_) if name in struct.type.names else pa.nulls(len(struct), type_)


def _batch(columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
