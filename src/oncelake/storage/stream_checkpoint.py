"""The checkpoint of a Structured Streaming query, read and written without a JVM.

`metadata` has the id of the query, `offsets/N` is written before batch N runs, and `commits/N` after it. A batch without
its commit is run again by Spark, with the same number and the same offsets.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from oncelake.model.streams import BatchOffsets
from oncelake.storage.objects import Storage, remove_file, storage, write_file

METADATA, OFFSETS, COMMITS, SOURCES = "metadata", "offsets", "commits", "sources"
# Where a source of Kafka notes the offsets at which its first batch began.
FIRST = "sources/0/0"
_FIRST_HEADER = b"\x00v1\n"
STATE = "state"


@dataclass(frozen=True)
class StreamCheckpoint:
    """What a checkpoint says: the id of its query, the batches that were begun, and those that were finished."""

    folder: str
    query: str | None
    offsets: tuple[int, ...]
    commits: tuple[int, ...]
    # Files that Spark cannot use: not complete, or temporary ones that a kill left.
    torn: tuple[str, ...] = ()
    temporary: tuple[str, ...] = ()

    @property
    def begun(self) -> int:
        """The last batch whose offsets are recorded; -1 if there is none."""
        return self.offsets[-1] if self.offsets else -1

    @property
    def finished(self) -> int:
        """The last batch that the query does not run again; -1 if there is none.

        Spark repeats the newest batch if it has no commit, and no other: one before it counts as finished, with or without.
        """
        return max(self.commits[-1] if self.commits else -1, self.begun - 1)

    @property
    def is_empty(self) -> bool:
        """Whether no batch was begun, so that a new query may start here."""
        return not self.offsets and not self.commits

    @property
    def first(self) -> str | None:
        """The offset at which the first batch began, if the source has noted it."""
        return read_first(self.folder)

    def read_offsets(self, number: int) -> BatchOffsets | None:
        """Return the offsets of a batch, if the checkpoint still has them."""
        return read_offsets(self.folder, number) if number in self.offsets else None


def read_offsets(folder: str, number: int) -> BatchOffsets | None:
    """Return the offsets of a batch in the checkpoint of a folder; None if it has none, or not completely."""
    with suppress(OSError, ValueError):
        return BatchOffsets.parse(storage(folder).read(f"{OFFSETS}/{number}").decode())
    return None


def read_first(folder: str) -> str | None:
    """Return the offset at which the first batch of a checkpoint began, if the source has noted it."""
    with suppress(OSError, ValueError):
        content = storage(folder).read(FIRST)
        text = content.removeprefix(_FIRST_HEADER).decode()
        if content.startswith(_FIRST_HEADER) and isinstance(json.loads(text), dict):
            return text
    return None


def load_checkpoint(folder: str) -> StreamCheckpoint | None:
    """Return the checkpoint in a folder, or None if there is none."""
    place = storage(folder)
    query = _read_query(place)
    names = {part: place.names(part) for part in (OFFSETS, COMMITS)}
    if query is None and not any(names.values()):
        return None
    numbers = {part: sorted(int(name) for name in found if name.isdigit()) for part, found in names.items()}
    # Only the newest are read: those before them were complete when they ran.
    torn = [(part, number) for part in numbers for number in numbers[part][-2:] if is_torn(place, part, number)]
    offsets, commits = (
        tuple(number for number in numbers[part] if (part, number) not in torn) for part in (OFFSETS, COMMITS)
    )
    temporary = tuple(f"{part}/{name}" for part, found in names.items() for name in found if _is_left_over(name, found))
    return StreamCheckpoint(folder, query, offsets, commits, tuple(f"{part}/{n}" for part, n in torn), temporary)


def _read_query(place: Storage) -> str | None:
    with suppress(OSError, ValueError, KeyError, TypeError):
        return str(json.loads(place.read(METADATA))["id"])
    return None


def is_torn(place: Storage, part: str, number: int) -> bool:
    """Return whether a file is not complete."""
    try:
        text = place.read(f"{part}/{number}").decode()
        if part == OFFSETS:
            BatchOffsets.parse(text)
        else:
            json.loads(text.partition("\n")[2])
        return not text.startswith("v1\n{")
    except (OSError, ValueError):
        return True


def is_temporary(name: str) -> bool:
    """Return whether a name is that of a file which a writer had not finished when it was killed."""
    return name.startswith(".") and name.endswith(".tmp")


def _is_left_over(name: str, names: Collection[str]) -> bool:
    """Return whether a file is temporary, or the checksum of a file that is not there, which Spark cannot write again."""
    checked = name[1:-4] if name.startswith(".") and name.endswith(".crc") else None
    return is_temporary(name) or (checked is not None and checked not in names)


def begin_checkpoint(folder: str, query: str) -> None:
    """Write the id of a query that has not begun: Spark takes it over instead of choosing one at random."""
    write_file(folder, METADATA, metadata_content(query))


def metadata_content(query: str) -> bytes:
    """Return the file that names the query of a checkpoint."""
    return json.dumps({"id": query}).encode()


def commit_content(watermark_ms: int = 0) -> bytes:
    """Return the file of a finished batch, with the watermark of the next one."""
    return f'v1\n{{"nextBatchWatermarkMs":{watermark_ms}}}'.encode()


def first_offset_content(offset: str) -> bytes:
    """Return the file in which a source notes the offset at which its first batch began."""
    return _FIRST_HEADER + offset.encode()


def write_checkpoint(
    folder: str, query: str, offsets: Mapping[int, BatchOffsets], commits: Iterable[int], first: str | None = None
) -> None:
    """Write a checkpoint that goes on after its last commit; the newest batch is run again if it has none.

    Spark needs the offsets of the two newest batches. `metadata` comes last: without it the folder is no checkpoint.
    """
    if first is not None:
        write_file(folder, FIRST, first_offset_content(first))
    for number, entry in offsets.items():
        write_file(folder, f"{OFFSETS}/{number}", entry.file_text().encode())
    for number in commits:
        write_file(folder, f"{COMMITS}/{number}", commit_content())
    begin_checkpoint(folder, query)


def remove_entries(folder: str, names: Iterable[str]) -> None:
    """Remove files of a checkpoint, each with the checksum that Hadoop keeps beside it."""
    for name in names:
        remove_file(folder, name)
        part, _, file = name.rpartition("/")
        remove_file(folder, posixpath.join(part, f".{file}.crc"))
