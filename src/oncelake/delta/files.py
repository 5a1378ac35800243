"""The data files of one version of a table, as columns: a million files are a few Arrow arrays, not a dict each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from oncelake.delta.add_columns import FILE_FIELDS, file_columns, vector_id
from oncelake.delta.arrays import array_of, numbers, scalar_of, table_of
from oncelake.delta.checkpoints import CheckpointFiles
from oncelake.delta.commit_file import CommitFile
from oncelake.delta.statistics import Statistics, parse_statistics, value_type

if TYPE_CHECKING:
    from oncelake.delta.log import TableLog

# A file is known by its path and the deletion vector that it is read with.
FileKey = tuple[str, str | None]
# Refreshes append chunks; above this number they are combined.
_CHUNKS = 64
_PARTITION = "partition "
_ZERO, _NO_TEXT = scalar_of(0, pa.int64()), scalar_of("", pa.string())


class CheckpointAdds:
    """The `add` actions of a checkpoint. Statistics are read for the columns that are asked for, each once."""

    def __init__(self, files: CheckpointFiles) -> None:
        """Store where the files are; nothing is read yet."""
        self._files = files
        self._statistics: dict[tuple[str | None, str], Statistics] = {}

    def columns(self, partitioned_by: Sequence[str]) -> pa.Table:
        """Return them as columns, without statistics."""
        columns = {name: _partition(name) for name in partitioned_by}
        batches = [file_columns(batch, columns) for batch in self._files.add_batches(FILE_FIELDS)]
        return pa.concat_tables(batches) if batches else table_of([], _schema(partitioned_by)).drop(["row", "stats"])

    def statistics(self, name: str | None, kind: str) -> Statistics:
        """Return the statistics of a column for all of them."""
        if (name, kind) not in self._statistics:
            batches = self._files.add_batches(("stats",))
            parts = [parse_statistics(batch.column("stats"), name, value_type(kind)) for batch in batches]
            self._statistics[name, kind] = Statistics.concat(parts)
        return self._statistics[name, kind]


@dataclass(frozen=True)
class Files:
    """The files of a version. The columns are path, size, modified, vector, deleted and the partition columns.

    Statistics are parsed for the columns that are asked for, once: `row` is a file's place in the checkpoint that has its
    statistics, and `stats` are the statistics of a file that was added since.
    """

    table: pa.Table
    partitioned_by: tuple[str, ...]
    checkpoint: CheckpointAdds | None = None
    # What was derived from the files, by whatever identifies it.
    memo: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, checkpoint: CheckpointAdds | None, partitioned_by: Sequence[str]) -> Files:
        """Return the files of a checkpoint; no files if there is none."""
        if checkpoint is None:
            return cls(table_of([], _schema(partitioned_by)), tuple(partitioned_by))
        found = checkpoint.columns(partitioned_by)
        table = found.append_column("row", numbers(len(found)))
        table = table.append_column("stats", pa.nulls(len(found), pa.string()))
        return cls(table.select(_schema(partitioned_by).names), tuple(partitioned_by), checkpoint)

    def after(self, entries: Iterable[CommitFile]) -> Files:
        """Return the files after some commits."""
        changed: dict[FileKey, Mapping[str, Any] | None] = {}
        for entry in entries:
            for action in entry.actions("remove"):
                changed[_key(action)] = None
            for action in entry.actions("add"):
                changed[_key(action)] = action
        if not changed:
            return self
        added = [_row(add, self.partitioned_by) for add in changed.values() if add is not None]
        schema = _schema(self.partitioned_by)
        table = pa.concat_tables([self._without(changed), table_of(added, schema)])
        if table.column("path").num_chunks > _CHUNKS:
            table = table.combine_chunks()
        return Files(table, self.partitioned_by, self.checkpoint)

    def _without(self, keys: Iterable[FileKey]) -> pa.Table:
        """Return the rows of all files but these."""
        gone = set(keys)
        paths = array_of(sorted({path for path, _ in gone}), pa.string())
        suspect = pc.is_in(self.table.column("path"), paths)
        places = pc.indices_nonzero(suspect)
        if not len(places):
            return self.table
        found = self.table.select(["path", "vector"]).take(places).to_pylist()
        lost = [n for n, one in zip(places.to_pylist(), found, strict=True) if (one["path"], one["vector"]) in gone]
        if not lost:
            return self.table
        kept = pc.invert(pc.is_in(numbers(len(self)), array_of(lost, pa.int64())))
        return self.table.filter(kept)

    def __len__(self) -> int:
        """Return the number of files."""
        count: int = self.table.num_rows
        return count

    def paths(self) -> list[str]:
        """Return the paths, as the log spells them."""
        found: list[str] = self.table.column("path").to_pylist()
        return found

    @property
    def sizes(self) -> pa.ChunkedArray:
        """The size of each file in bytes."""
        return self.table.column("size")

    @property
    def deleted(self) -> pa.ChunkedArray:
        """The number of rows of each file that a deletion vector marks as deleted."""
        return self.table.column("deleted")

    @property
    def modified(self) -> pa.ChunkedArray:
        """When each file was written, in milliseconds."""
        return self.table.column("modified")

    def partition(self, name: str) -> pa.ChunkedArray:
        """Return the value of a partition column for each file, as the log spells it."""
        return self.table.column(_partition(name))

    def partitions(self) -> list[tuple[str | None, ...]]:
        """Return the partition of each file: the values of the partition columns in their order."""
        columns = [self.partition(name).to_pylist() for name in self.partitioned_by]
        return list(zip(*columns, strict=True)) if columns else [()] * len(self)

    def where(self, wanted: pa.Array) -> Files:
        """Return some of the files."""
        return Files(self.table.filter(wanted), self.partitioned_by, self.checkpoint)

    def locations(self) -> Iterator[dict[str, Any]]:
        """Yield the path and, if there is one, the deletion vector of each file, as the log has them."""
        for row in self.table.select(["path", "vector", "deleted"]).to_pylist():
            if row["vector"] is None:
                yield {"path": row["path"]}
                continue
            storage, _, rest = row["vector"].partition("@")
            path, _, offset = rest.rpartition("@")
            vector = {"storageType": storage, "pathOrInlineDv": path, "cardinality": row["deleted"]}
            yield {"path": row["path"], "deletionVector": vector | ({"offset": int(offset)} if offset else {})}

    def nulls(self, name: str, kind: str = "") -> tuple[int, int | None]:
        """Return at least and at most how many rows are null in a column; None for most where a file does not say."""
        if name in self.partitioned_by:
            empty = pc.equal(pc.fill_null(self.partition(name), _NO_TEXT), _NO_TEXT)
            counts = pc.if_else(empty, self.statistics().rows, _ZERO)
        else:
            counts = self.statistics(name, kind).nulls
        # Statistics count the rows that a deletion vector marks, too.
        left = pc.max_element_wise(pc.subtract(counts, self.deleted), _ZERO, skip_nulls=False)
        least, most = (pc.sum(each).as_py() or 0 for each in (left, counts))
        return least, None if counts.null_count else most

    @cached_property
    def size(self) -> int:
        """The size of all files."""
        return pc.sum(self.sizes).as_py() or 0

    def size_in(self, values: Mapping[str, Collection[str]]) -> int:
        """Return the size of the files whose partition columns have one of these values each."""
        sizes = self.sizes
        for name, wanted in values.items():
            there = pc.is_in(self.partition(name), array_of(wanted, pa.string()))
            sizes = pc.if_else(there, sizes, _ZERO)
        return pc.sum(sizes).as_py() or 0

    def by_partition(self, names: Sequence[str], small: int) -> list[dict[str, Any]]:
        """Return each partition with the number of its files that are smaller, of its rows and of its deleted rows.

        Rows are counted only if some are deleted, because that takes all statistics.
        """
        some = (pc.sum(self.deleted).as_py() or 0) > 0
        counts = {
            "small": pc.cast(pc.less(self.sizes, small), pa.int64()),
            "deleted": self.deleted,
            "rows": pc.fill_null(self.statistics().rows, _ZERO) if some else self.deleted,
        }
        table = pa.table({**{_partition(name): self.partition(name) for name in names}, **counts})
        keys = [_partition(name) for name in names]
        groups = table.group_by(keys).aggregate([(each, "sum") for each in counts]).to_pylist()
        return [
            {
                **{name: each[_partition(name)] for name in names},
                **{count: each[f"{count}_sum"] or 0 for count in counts},
            }
            for each in groups
        ]

    def greatest(self, name: str, kind: str) -> tuple[bool, Any]:
        """Return whether statistics say what the greatest value of a column is, and the value; None if all rows are null."""
        found = self.statistics(name, kind)
        known = pc.or_(pc.is_valid(found.most), found.only_nulls())
        if not pc.all(known, min_count=0).as_py():
            return False, None
        if kind != "timestamp" or found.most.null_count == len(self):
            return True, pc.max(found.most).as_py()
        # Statistics spell a timestamp in the time zone of their writer.
        texts = pc.unique(found.most).drop_null().to_pylist()
        return True, max(map(datetime.fromisoformat, texts))

    @cached_property
    def rows(self) -> int | None:
        """The number of rows, from the statistics; None where a file has none."""
        counts = self.statistics().rows
        if counts.null_count:
            return None
        return (pc.sum(counts).as_py() or 0) - (pc.sum(self.deleted).as_py() or 0)

    def statistics(self, name: str | None = None, kind: str = "") -> Statistics:
        """Return the statistics of a column of that type for each file; without a name only the number of rows."""
        if (name, kind) not in self.memo:
            self.memo[name, kind] = self._statistics(name, kind)
        found: Statistics = self.memo[name, kind]
        return found

    def _statistics(self, name: str | None, kind: str) -> Statistics:
        row = self.table.column("row")
        old = row.drop_null()
        # Files of the checkpoint come first, those of the commits after it are at the end.
        added = self.table.column("stats").slice(len(old))
        new = parse_statistics(added, name, value_type(kind))
        if self.checkpoint is None or not len(old):
            return new
        return Statistics.concat([self.checkpoint.statistics(name, kind).take(old), new])


def load_files(log: TableLog) -> Files:
    """Return the files of a log, from those of an earlier version that are known, or from its checkpoint."""
    loaded = dict(log.loaded)
    usable = [v for v, known in loaded.items() if v <= log.version and known.partitioned_by == log.partitioned_by]
    if usable:
        since = max(usable)
        earlier = loaded[since]
    elif log.checkpoint is not None:
        since = log.checkpoint.version
        adds = CheckpointAdds(CheckpointFiles(log.storage, log.checkpoint, log.table, log.path))
        earlier = Files.of(adds, log.partitioned_by)
    else:
        since, earlier = -1, Files.of(None, log.partitioned_by)
    return earlier.after(log.read_entries(range(since + 1, log.version + 1)))


def _key(action: Mapping[str, Any]) -> FileKey:
    return action["path"], vector_id(action.get("deletionVector"))


def _row(add: Mapping[str, Any], partitioned_by: Iterable[str]) -> dict[str, Any]:
    values = add.get("partitionValues") or {}
    vector = add.get("deletionVector") or {}
    return {
        "path": add["path"],
        "size": add.get("size"),
        "modified": add.get("modificationTime"),
        "vector": vector_id(vector),
        "deleted": vector.get("cardinality") or 0,
        "stats": add.get("stats"),
        **{_partition(name): values.get(name) for name in partitioned_by},
    }


def _partition(name: str) -> str:
    """Return the name of the column for a partition column; it must not be one of the others."""
    return f"{_PARTITION}{name}"


def _schema(partitioned_by: Iterable[str]) -> pa.Schema:
    return pa.schema(
        [
            ("path", pa.string()),
            ("size", pa.int64()),
            ("modified", pa.int64()),
            ("vector", pa.string()),
            ("deleted", pa.int64()),
            ("row", pa.int64()),
            ("stats", pa.string()),
            *((_partition(name), pa.string()) for name in partitioned_by),
        ]
    )
