"""Read a Delta log without a JVM: markers (txn), facts, versions and row counts, from a checkpoint and the commits after it."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any

from oncelake.delta.checkpoints import Checkpoint, CheckpointFiles, CheckpointState, TxnRecord, newest_checkpoint
from oncelake.delta.commit_file import (
    LOG,
    CommitFile,
    commit_file_name,
    commit_name,
    commit_versions,
    read_commit_files,
    refuse_gaps,
)
from oncelake.delta.lineage import newest_rebuild, rebuilt_facts, recent_facts, undone_versions
from oncelake.delta.overtaken import find_overtaken
from oncelake.errors import CorruptLog, NotDelta, TableMissing
from oncelake.model.coverage import Coverage, resolve_overlaps
from oncelake.model.markers import (
    RESTATE_PREFIX,
    RESTORE_PREFIX,
    Marker,
    app_id,
    former_app_ids,
    parse_restore,
    present_app_id,
    streams_of,
    writer_of,
)
from oncelake.model.slices import Whole
from oncelake.model.work import Commit, Rows
from oncelake.storage.object_store import Stamp
from oncelake.storage.objects import Listing, Storage, storage

if TYPE_CHECKING:
    from oncelake.delta.files import Files

# A writer's clock is read before its commit lands; the search for a marker's commit starts this much earlier.
_CLOCK_SLACK_MS = 5_000
# Where it has to be quick, only so many of the newest commits are looked at: each is a file to read.
NEWEST = 100
# A checkpoint of more bytes is large; a file takes about 60 of them.
LARGE = 8 * 1024 * 1024


@dataclass(frozen=True)
class TableLog:
    """The log of one table at its newest version."""

    table: str
    path: str
    version: int
    markers: Mapping[str, TxnRecord]
    metadata: Mapping[str, Any]
    protocol: Mapping[str, Any]
    domains: Mapping[str, str]
    commits: tuple[int, ...]
    checkpoint: Checkpoint | None
    storage: Storage = field(repr=False, compare=False)
    # Size and time of the newest commit file: they differ if the table was dropped and recreated.
    stamp: Stamp | None = field(default=None, repr=False, compare=False)
    entries: dict[int, CommitFile] = field(default_factory=dict, repr=False, compare=False)
    found: dict[str, list[Coverage]] = field(default_factory=dict, repr=False, compare=False)
    # Former names of the pipelines that write the table, by their present names: works under either count.
    formerly: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False, compare=False)
    # The files of one version, as far as they were asked for.
    loaded: dict[int, Files] = field(default_factory=dict, repr=False, compare=False)

    def done(self, marker: Marker) -> bool:
        """Return whether the marker, or a later one of the same app id, is recorded."""
        recorded = self.recorded(marker.app_id)
        return recorded is not None and recorded >= marker.version

    def recorded(self, app_id: str) -> int | None:
        """Return the version recorded for an app id, if there is one."""
        return max((self.markers[name].version for name in self._spellings(app_id)), default=None)

    def commit(self, app_id: str) -> Commit | None:
        """Return the newest commit that carries the app id, if the log still has it."""
        app_id = max(self._spellings(app_id), key=lambda name: self.markers[name].version, default="")
        recorded = self.markers.get(app_id)
        if recorded is None:
            return None
        for version in self._candidates(recorded):
            entry = self.entry(version)
            if entry.markers.get(app_id) == recorded.version:
                return entry.commit if self._is_work(entry) else self._earlier_commit(app_id, version)
        return None

    def _earlier_commit(self, app_id: str, before: int) -> Commit | None:
        """Return the newest commit with an app id that a restore did not undo."""
        earlier = reversed(self.commits[: bisect_left(self.commits, before)])
        entries = (entry for version in earlier if self._is_work(entry := self.entry(version)))
        found = next((entry.commit for entry in entries if app_id in entry.markers), None)
        return found or self._rebuilt_commit(app_id)

    def _is_work(self, entry: CommitFile) -> bool:
        """Return whether the rows of a commit are in the table, and it is no restore, which records markers of other commits."""
        return "restore" not in entry.facts and self.in_lineage(entry.version)

    def _rebuilt_commit(self, app_id: str) -> Commit | None:
        """Return the commit of a rebuild that replayed a work, with what it says of that work."""
        rebuild = newest_rebuild(self)
        facts = rebuilt_facts(self, rebuild, app_id)
        return replace(rebuild.commit, facts=facts, rows=Rows(quarantined=None)) if rebuild and facts else None

    @cached_property
    def restores(self) -> list[tuple[int, int]]:
        """The restores through us, by their markers: the version of each, and the one it went back to."""
        names = [name for name in self.markers if name.startswith(RESTORE_PREFIX)]
        return [found for name in names if (found := parse_restore(name, self.markers[name].version))]

    @cached_property
    def undone(self) -> list[tuple[int, int]]:
        """The ranges of versions, both ends included, that restores took out of the table's lineage, newest first."""
        return undone_versions(self.restores, self.version)

    def in_lineage(self, version: int) -> bool:
        """Return whether the table still has what a commit wrote: no restore went back behind it."""
        return not any(first <= version <= last for first, last in self.undone)

    @cached_property
    def overtaken(self) -> Mapping[str, int]:
        """The works that must be applied once more, by app id, each with the version in which it was overtaken."""
        known = self.commits if self.markers else ()
        entries = (self.entry(version) for version in reversed(known) if self.in_lineage(version))
        found = find_overtaken(entries, lambda name: present_app_id(name, self.formerly))
        return {work: version for work, version in found.items() if self.in_lineage(version)}

    def overtaken_version(self, app_id: str) -> int | None:
        """Return the version in which a work was overtaken, if it must be applied once more."""
        return self.overtaken.get(present_app_id(app_id, self.formerly)) if self.overtaken else None

    def commit_at(self, version: int) -> Commit | None:
        """Return the commit of a version, if the log still has it."""
        return self.entry(version).commit if version in self.commits else None

    def coverage(self, pipeline: str, target: str, requested: bool = False) -> list[Coverage]:
        """Return the time a pipeline has done here, by markers that name intervals; where they overlap, the highest generation.

        Or, if `requested`, the time that was requested to be restated, up to which generation.
        """
        key = _start(pipeline, target) + (RESTATE_PREFIX if requested else "")
        if key not in self.found:
            starts = [key, *former_app_ids(key, self.formerly)]
            self.found[key] = resolve_overlaps(each for start in starts for each in self._intervals(start))
        return self.found[key]

    def streams(self, pipelines: Iterable[str], target: str) -> dict[str, int]:
        """Return the streams of pipelines, by some names, that wrote batches here: the last batch of each."""
        return streams_of({name: each.version for name, each in self.markers.items()}, pipelines, target)

    def writers(self) -> set[tuple[str, str]]:
        """Return the pipelines that have markers here, each with the name of the target in its markers."""
        return {writer for name in self.markers if (writer := writer_of(name))}

    def _spellings(self, app_id: str) -> list[str]:
        """Return an app id, under the present and the former names of its pipeline, as far as it is recorded."""
        return [name for name in (app_id, *former_app_ids(app_id, self.formerly)) if name in self.markers]

    def _intervals(self, start: str) -> Iterator[Coverage]:
        for name, recorded in ((name, each) for name, each in self.markers.items() if name.startswith(start)):
            first, _, last = name[len(start) :].partition("..")
            # Other slices are spelled "whole", or begin with "=" or a word; a restore sets what does not count to 0.
            if first[:1].isdigit() and recorded.version:
                yield Coverage(first, last, recorded.version, name)

    def last_of(self, pipeline: str, target: str) -> datetime | None:
        """Return when a pipeline last wrote a marker here."""
        key = _start(pipeline, target)
        starts = (key, *former_app_ids(key, self.formerly))
        times = (recorded.updated_ms or 0 for name, recorded in self.markers.items() if name.startswith(starts))
        newest = max(times, default=0)
        return datetime.fromtimestamp(newest / 1000, UTC) if newest else None

    def entry(self, version: int) -> CommitFile:
        """Return one commit of the log; commits never change, so each is read once."""
        return self.entries.get(version) or self.read_entries([version])[0]

    def read_entries(self, versions: Iterable[int]) -> list[CommitFile]:
        """Return some commits of the log; those that were not read before are read in parallel."""
        versions = list(versions)
        missing = [version for version in versions if version not in self.entries]
        for entry in read_commit_files(self.storage, self.table, self.path, missing):
            self.entries[entry.version] = entry
        return [self.entries[version] for version in versions]

    def history(self) -> Iterator[CommitFile]:
        """Return the commits that the log still has, newest first."""
        return (self.entry(version) for version in reversed(self.commits))

    def newest(self, count: int | None = NEWEST) -> list[CommitFile]:
        """Return the newest commits, newest first; without a count all that the log still has."""
        return self.read_entries(islice(reversed(self.commits), count))

    def newest_facts(self) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the facts of the newest commits that no restore undid, oldest first, each with an app id it carries."""
        entries = [entry for entry in reversed(self.newest()) if self._is_work(entry)]
        return [(name, entry.facts) for entry in entries for name in entry.markers]

    def recent_facts(self, app_ids: Iterable[str]) -> dict[str, Mapping[str, Any] | None]:
        """Return the facts of works as far as the newest commits tell; None for a work whose commit the log no longer has."""
        return dict(recent_facts(self, app_ids, NEWEST))

    @cached_property
    def schema(self) -> dict[str, str]:
        """The columns and their types, as Delta spells them."""
        fields = json.loads(self.metadata.get("schemaString") or '{"fields": []}')["fields"]
        return {f["name"]: f["type"] if isinstance(f["type"], str) else f["type"]["type"] for f in fields}

    @property
    def partitioned_by(self) -> tuple[str, ...]:
        """The partition columns."""
        return tuple(self.metadata.get("partitionColumns") or ())

    @property
    def mapped(self) -> bool:
        """Whether files know the columns by other names than the schema does."""
        return self._setting("delta.columnMapping.mode") in ("name", "id")

    @property
    def clustered_by(self) -> tuple[str, ...]:
        """The clustering columns."""
        columns = json.loads(self.domains.get("delta.clustering") or "{}").get("clusteringColumns", [])
        return tuple(path[0] for path in columns if len(path) == 1 and not self.mapped)

    @property
    def deletion_vectors(self) -> bool:
        """Whether rows are marked as deleted instead of files rewritten."""
        return self._setting("delta.enableDeletionVectors") == "true"

    @property
    def widens_types(self) -> bool:
        """Whether an append may widen the types of columns."""
        return self._setting("delta.enableTypeWidening") == "true"

    def _setting(self, name: str) -> str | None:
        return dict(self.metadata.get("configuration") or {}).get(name)

    @property
    def is_large(self) -> bool:
        """Whether reading the statistics of all files takes long: more than about a second for 400,000 files."""
        return self.checkpoint is not None and self.checkpoint.size > LARGE

    def rows(self) -> int | None:
        """Return the number of rows, from the files' statistics; None where a file has none."""
        return self.files.rows

    @property
    def files(self) -> Files:
        """The data files of the newest version. They are read once; after that only new commits are applied to them."""
        known = self.loaded.get(self.version)
        if known is None:
            from oncelake.delta.files import load_files

            known = load_files(self)
            self.loaded.clear()
            self.loaded[self.version] = known
        return known

    def _candidates(self, recorded: TxnRecord) -> Iterator[int]:
        """Yield the versions that may hold the marker's commit, the likeliest first."""
        if recorded.commit is not None:
            yield recorded.commit
            return
        if recorded.updated_ms is not None:
            wanted = recorded.updated_ms - _CLOCK_SLACK_MS
            first = bisect_left(self.commits, wanted, key=lambda v: self.entry(v).timestamp_ms or 0)
            yield from self.commits[first : first + 64]
        yield from reversed(self.commits)


def read_log(table: str, path: str) -> TableLog:
    """Return the log of a table; TableMissing if it has none, NotDelta if the folder holds something else."""
    log = find_log(table, path)
    if log is None:
        raise TableMissing(table=table, path=path)
    return log


def read_log_at(table: str, path: str, version: int) -> TableLog:
    """Return the log of a table as of a version; CorruptLog if it no longer reaches back that far."""
    place = storage(path)
    listing = place.listing(LOG)
    earlier = [name for name in listing.names if name[:20].isdigit() and int(name[:20]) <= version]
    checkpoint = newest_checkpoint(earlier)
    return _replay(TableLog(table, path, -1, {}, {}, {}, {}, commit_versions(earlier), checkpoint, place), listing)


def find_log(table: str, path: str) -> TableLog | None:
    """Return the log of a table, or None if the table does not exist yet."""
    try:
        return _find(table, path)
    except CorruptLog:
        # A writer may have made a checkpoint and cleaned up behind it while we read: retry once.
        return _find(table, path)


def being_created(path: str) -> bool:
    """Return whether a log has been begun at a path, though it may have no commit yet."""
    return LOG in storage(path).names()


def _find(table: str, path: str) -> TableLog | None:
    place = storage(path)
    listing = place.listing(LOG)
    versions, checkpoint = commit_versions(listing.names), newest_checkpoint(listing.names)
    if not versions and checkpoint is None:
        _refuse_other_files(table, path, place)
        return None
    if checkpoint is not None:
        stamps = (listing.stamp(name) for name in checkpoint.files)
        checkpoint = replace(checkpoint, size=sum(stamp[0] for stamp in stamps if stamp))
    return _replay(TableLog(table, path, -1, {}, {}, {}, {}, versions, checkpoint, place), listing)


def _refuse_other_files(table: str, path: str, place: Storage) -> None:
    """Refuse a folder that holds data but no log: something else wrote it."""
    found = [name for name in place.names() if name[0] not in "._"]
    if found:
        raise NotDelta(table=table, path=path, example=min(found))


def refresh_log(log: TableLog) -> TableLog | None:
    """Return the log at its newest version, reading only the commits that came since; None if the table is gone."""
    listing = log.storage.listing(LOG)
    versions = commit_versions(listing.names)
    if not _continues(log, versions, listing.stamp(commit_file_name(log.version))):
        return find_log(log.table, log.path)
    tail = versions[bisect_right(versions, log.version) :]
    if not tail:
        return log if versions == log.commits else replace(log, commits=versions)
    state = CheckpointState(dict(log.markers), log.metadata, log.protocol, dict(log.domains))
    try:
        advanced = _advance(replace(log, commits=versions), state, tail, listing)
    except CorruptLog:
        return find_log(log.table, log.path)
    # If the table was recreated while its new commits were read, they are not those of the log that was known.
    same = _continues(log, versions, log.storage.stamp(commit_name(log.version)))
    return advanced if same else find_log(log.table, log.path)


def _continues(log: TableLog, versions: tuple[int, ...], stamp: Stamp | None) -> bool:
    """Whether the commits in a log come after those that were read: same table, no gap, back to the checkpoint."""
    first = log.checkpoint.version + 1 if log.checkpoint else 0
    known = bisect_left(versions, log.version)
    tail = versions[known:]
    if not tail or tail != tuple(range(log.version, tail[-1] + 1)) or versions[0] > first:
        return False
    return stamp == log.stamp


def _replay(log: TableLog, listing: Listing) -> TableLog:
    """Read a log of which only the listing is known, from its checkpoint and the commits after it."""
    state, first = CheckpointState({}, {}, {}, {}), 0
    if log.checkpoint is not None:
        state = CheckpointFiles(log.storage, log.checkpoint, log.table, log.path).state()
        first = log.checkpoint.version + 1
    tail = log.commits[bisect_left(log.commits, first) :]
    refuse_gaps(log.table, log.path, first, tail)
    return _advance(replace(log, version=first - 1), state, tail, listing)


def _advance(log: TableLog, state: CheckpointState, tail: Sequence[int], listing: Listing) -> TableLog:
    """Return the log after some more commits, which are kept: whoever asks for one of them need not read it again."""
    markers, metadata, protocol, domains = state.markers, state.metadata, state.protocol, state.domains
    newest = tail[-1] if tail else log.version
    # Before the commits are read: if the table is recreated meanwhile, the next look sees another file.
    stamp = listing.stamp(commit_file_name(newest))
    for entry in log.read_entries(tail):
        for txn in entry.actions("txn"):
            markers[txn["appId"]] = TxnRecord(txn["version"], txn.get("lastUpdated"), entry.version)
        metadata = next(entry.actions("metaData"), metadata)
        protocol = next(entry.actions("protocol"), protocol)
        for each in entry.actions("domainMetadata"):
            domains[each["domain"]] = "" if each.get("removed") else each["configuration"]
    return replace(
        log,
        version=newest,
        markers=markers,
        metadata=metadata,
        protocol=protocol,
        domains=domains,
        stamp=stamp,
        found={},
    )


def _start(pipeline: str, target: str) -> str:
    """Return how every app id of a pipeline and target begins."""
    return app_id(pipeline, target, Whole()).removesuffix(Whole().text)
