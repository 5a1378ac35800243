"""Examine the files of a checkpoint: what Spark cannot read, what is missing, and what would put it right.

Only files are looked at, and what the targets' own commits record of the batches. A fix is offered where it is certain to be
right: it removes what no batch needs, or writes what the commits say. Nothing that is fixed here loses a row.
"""

from __future__ import annotations

import json
import posixpath
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from oncelake.model.streams import BatchOffsets
from oncelake.storage.objects import Storage, remove_file, replace_file, storage
from oncelake.storage.stream_checkpoint import (
    COMMITS,
    METADATA,
    OFFSETS,
    STATE,
    commit_content,
    is_temporary,
    is_torn,
    metadata_content,
)

ERROR, WARNING, NOTE = "error", "warning", "note"
_CRC_HEADER = b"crc\x00"
# Spark's own files are read from these folders; a kill leaves temporary files in each.
_FOLDERS = ("", OFFSETS, COMMITS, "sources/0")


@dataclass(frozen=True)
class Finding:
    """Something wrong, or worth knowing, with a stream or the set-up; `fix` says what `--fix` does, `next` what else helps."""

    code: str
    severity: str
    path: str
    message: str
    fix: str = ""
    next: str = ""
    pipeline: str | None = None
    fixed: bool = False
    apply: Callable[[], None] | None = field(default=None, repr=False, compare=False)

    def document(self) -> dict[str, Any]:
        """Return the finding as `doctor --json` prints it."""
        names = ("code", "severity", "pipeline", "path", "message", "fix", "next", "fixed")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class Recorded:
    """What the targets of a stream say of it: the id of its query, the last batch of each, and the offsets of batches."""

    query: str
    batches: Mapping[str, int]
    # The pins of batches by number, as far as the newest commits record them.
    pins: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def newest(self) -> int:
        """The last batch that any target has."""
        return max(self.batches.values(), default=-1)

    def offsets(self, number: int) -> BatchOffsets | None:
        """Return the offsets of a batch; of the one before a recorded batch only where it ended is known."""
        if number in self.pins:
            return BatchOffsets.from_facts(self.pins[number]["offsets"])
        following = self.pins.get(number + 1)
        if following and following.get("from") and number >= 0:
            return BatchOffsets(tuple(following["from"]), following["offsets"]["metadata"])
        return None


def examine_checkpoint(folder: str, recorded: Recorded, stateful: bool = False) -> list[Finding]:
    """Return what is wrong with the files of a checkpoint; empty if it does not exist."""
    return list(_Examination(folder, recorded, stateful).findings())


class _Examination:
    def __init__(self, folder: str, recorded: Recorded, stateful: bool) -> None:
        self.folder, self.recorded, self.stateful = folder, recorded, stateful
        self.place: Storage = storage(folder)
        self.names = {part: self.place.names(part) for part in _FOLDERS}
        self.numbers = {
            part: sorted(int(name) for name in self.names[part] if name.isdigit()) for part in (OFFSETS, COMMITS)
        }

    def findings(self) -> Iterator[Finding]:
        if not any(self.names.values()):
            return
        yield from self._temporary()
        yield from self._torn_offsets()
        yield from self._torn_commits()
        yield from self._missing_offsets()
        yield from self._missing_commits()
        yield from self._checksums()
        yield from self._metadata()
        yield from self._state()

    def _state(self) -> Iterator[Finding]:
        """The state of a query that keeps one: without it only the input can give it again."""
        if self.stateful and self.numbers[COMMITS] and STATE not in self.names[""]:
            message = "the state of the query is gone, and the commits of the targets do not have it"
            yield self._finding("state_missing", ERROR, STATE, message)

    def _temporary(self) -> Iterator[Finding]:
        """Files that a kill left half written. Spark cannot start a new checkpoint that has them."""
        found = [posixpath.join(part, name) for part in _FOLDERS for name in self.names[part] if _is_scratch(name)]
        if not found:
            return
        is_new = not self.numbers[OFFSETS]
        why = ", and Spark refuses to start a new checkpoint with them (STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY)"
        message = f"{len(found)} temporary files were left by a kill{why if is_new else ''}"
        fix = f"remove {', '.join(found[:3])}{', …' if len(found) > 3 else ''}"
        yield self._finding("temporary_files", WARNING, found[0], message, fix, self._removal(*found))

    def _torn_offsets(self) -> Iterator[Finding]:
        for number in self.numbers[OFFSETS]:
            name = f"{OFFSETS}/{number}"
            if not is_torn(self.place, OFFSETS, number):
                continue
            message = f"the offsets of batch {number} are not complete"
            if number < self.numbers[OFFSETS][-1] - 1:
                yield self._finding("torn_offsets", NOTE, name, f"{message}; Spark does not read them any more")
            elif offsets := self.recorded.offsets(number):
                fix = "write them as the commits of the targets record them"
                yield self._finding("torn_offsets", ERROR, name, message, fix, self._writing(name, offsets))
            elif self._was_never_written(number):
                fix = f"remove the file: no target has batch {number}, the next run plans it again"
                yield self._finding("torn_offsets", ERROR, name, message, fix, self._removal(name))
            else:
                yield self._finding("torn_offsets", ERROR, name, f"{message}, and no commit records them")

    def _was_never_written(self, number: int) -> bool:
        """Return whether a begun batch reached no target, and nothing of it is in the state of the query."""
        begun, later = self.numbers[OFFSETS][-1], number in self.numbers[COMMITS]
        first_of_state = number == 0 and STATE in self.names[""]
        return number == begun and not later and number > self.recorded.newest and not first_of_state

    def _torn_commits(self) -> Iterator[Finding]:
        for number in self.numbers[COMMITS]:
            name = f"{COMMITS}/{number}"
            if not is_torn(self.place, COMMITS, number):
                continue
            message = f"the commit of batch {number} is not complete"
            following = self._offsets(number + 1)
            if number < self.numbers[COMMITS][-1]:
                yield self._finding("torn_commit", NOTE, name, f"{message}; Spark does not read it any more")
            elif following is not None:
                fix = f"write it: batch {number + 1} was begun after it"
                yield self._finding("torn_commit", ERROR, name, message, fix, self._commit(number, following))
            else:
                fix = f"remove it: batch {number} is run again from its offsets, and skipped where it was written"
                yield self._finding("torn_commit", ERROR, name, message, fix, self._removal(name))

    def _missing_offsets(self) -> Iterator[Finding]:
        """Spark needs the offsets of the two newest batches, and of every batch that has a commit."""
        begun, finished = ((self.numbers[part] or [-1])[-1] for part in (OFFSETS, COMMITS))
        newest = max(begun, finished)
        needed = [number for number in (newest - 1, newest) if number >= 0 and number not in self.numbers[OFFSETS]]
        for number in needed:
            name, offsets = f"{OFFSETS}/{number}", self.recorded.offsets(number)
            message = f"the offsets of batch {number} are missing, and batch {newest} is there"
            if offsets is None:
                yield self._finding("offsets_missing", ERROR, name, f"{message}; no commit records them")
            else:
                fix = "write them as the commits of the targets record them"
                yield self._finding("offsets_missing", ERROR, name, message, fix, self._writing(name, offsets))
        gaps = sorted(set(range((self.numbers[OFFSETS] or [0])[0], newest)) - {*self.numbers[OFFSETS], *needed})
        if gaps:
            message = f"the offsets of {len(gaps)} older batches are missing; Spark does not read them any more"
            yield self._finding("offsets_gap", NOTE, f"{OFFSETS}/{gaps[0]}", message)

    def _missing_commits(self) -> Iterator[Finding]:
        """A batch that was begun after another without the other's commit: Spark goes on, and only warns."""
        begun = (self.numbers[OFFSETS] or [-1])[-1]
        number, following = begun - 1, self._offsets(begun)
        if number < 0 or number in self.numbers[COMMITS] or following is None or begun in self.numbers[COMMITS]:
            return
        message = f"batch {begun} was begun, and batch {number} before it has no commit"
        fix = f"write the commit of batch {number}"
        yield self._finding(
            "commits_out_of_step", WARNING, f"{COMMITS}/{number}", message, fix, self._commit(number, following)
        )

    def _checksums(self) -> Iterator[Finding]:
        """Hadoop keeps a checksum beside a file on a local disk, and refuses the file if it does not fit."""
        for part in (OFFSETS, COMMITS):
            for number in self.numbers[part][-2:]:
                crc, name = posixpath.join(part, f".{number}.crc"), f"{part}/{number}"
                if f".{number}.crc" not in self.names[part] or is_torn(self.place, part, number):
                    continue
                if _fits(self.place.read(name), self.place.read(crc)):
                    continue
                message = f"the checksum of {name} does not fit the file, and Spark will not read it"
                offsets = self.recorded.offsets(number) if part == OFFSETS else None
                mine = self._offsets(number)
                if part == COMMITS or (offsets and mine and offsets.sources == mine.sources):
                    fix = "remove the checksum: the file is complete" + (", and as recorded" if offsets else "")
                    yield self._finding("checksum", ERROR, crc, message, fix, self._removal(crc))
                else:
                    yield self._finding("checksum", ERROR, crc, message)

    def _metadata(self) -> Iterator[Finding]:
        try:
            str(json.loads(self.place.read(METADATA))["id"])
        except (OSError, ValueError, KeyError, TypeError):
            if not self.numbers[OFFSETS] and not self.numbers[COMMITS]:
                return  # the next run writes it
            message = "the file with the id of the query is missing or not complete: Spark would begin another query"
            if self._is_recorded():
                fix = f"write the id {self.recorded.query}: its offsets are those that the targets record"
                content = metadata_content(self.recorded.query)
                yield self._finding("missing_metadata", ERROR, METADATA, message, fix, self._put(METADATA, content))
            else:
                yield self._finding("missing_metadata", ERROR, METADATA, message)

    def _is_recorded(self) -> bool:
        """Return whether the offsets of a batch here are those which the commits of the targets record."""
        pairs = ((self._offsets(number), self.recorded.offsets(number)) for number in self.recorded.pins)
        return any(mine and theirs and mine.sources == theirs.sources for mine, theirs in pairs)

    def _offsets(self, number: int) -> BatchOffsets | None:
        if number not in self.numbers[OFFSETS]:
            return None
        try:
            return BatchOffsets.parse(self.place.read(f"{OFFSETS}/{number}").decode())
        except (OSError, ValueError):
            return None

    def _finding(
        self,
        code: str,
        severity: str,
        name: str,
        message: str,
        fix: str = "",
        apply: Callable[[], None] | None = None,
    ) -> Finding:
        return Finding(code, severity, posixpath.join(self.folder, name), message, fix, apply=apply)

    def _removal(self, *names: str) -> Callable[[], None]:
        def remove() -> None:
            for name in names:
                remove_file(self.folder, name)
                remove_file(self.folder, _checksum_of(name))

        return remove

    def _writing(self, name: str, offsets: BatchOffsets) -> Callable[[], None]:
        return self._put(name, offsets.file_text().encode())

    def _commit(self, number: int, following: BatchOffsets) -> Callable[[], None]:
        watermark = int(following.metadata.get("batchWatermarkMs", 0))
        return self._put(f"{COMMITS}/{number}", commit_content(watermark))

    def _put(self, name: str, content: bytes) -> Callable[[], None]:
        def write() -> None:
            # Before the file: a checksum that is stale makes it unreadable, and without one it is not checked.
            remove_file(self.folder, _checksum_of(name))
            replace_file(self.folder, name, content)

        return write


def _checksum_of(name: str) -> str:
    part, _, file = name.rpartition("/")
    return posixpath.join(part, f".{file}.crc")


def _is_scratch(name: str) -> bool:
    """Return whether a name is that of a temporary file, or of the checksum of one."""
    return is_temporary(name) or re.fullmatch(r"\..*\.tmp\.crc", name) is not None


def _fits(content: bytes, crc: bytes) -> bool:
    """Return whether the checksum file of Hadoop's local file system fits a file."""
    if not crc.startswith(_CRC_HEADER) or len(crc) < 8:
        return False
    (size,) = struct.unpack(">i", crc[4:8])
    if size <= 0:
        return False
    sums = [zlib.crc32(content[at : at + size]) for at in range(0, len(content), size)]
    return crc[8:] == b"".join(struct.pack(">I", each) for each in sums)
