"""Batches that are read again: which files they read, what is recorded of them then, and manifests that are missing."""

import os
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import pyarrow as pa
import pytest

from oncelake.errors import ManifestsMissing
from oncelake.model.arrivals import QuarantinedRow
from oncelake.model.contracts import Reading
from oncelake.model.slices import Batch, Whole
from oncelake.sources.arrivals.arriving import ArrivingFiles
from oncelake.sources.arrivals.backlog import Backlog
from oncelake.sources.arrivals.known_files import KnownFiles
from oncelake.sources.arrivals.manifests import OUTCOMES, conform, encode_files
from oncelake.sources.arrivals.quarantine_states import true_states


class Folder:
    """A landing folder and the backlog of its pipeline, without tables: commits are what a test says."""

    def __init__(self, root, **options):
        self.root, self.land = root, root / "landing"
        self.land.mkdir(exist_ok=True)
        self.source = ArrivingFiles("landing", "json", **options)
        self.lake = SimpleNamespace(
            file=lambda path: str(root / path),
            internal_path=lambda *parts: str(root.joinpath("lake/_oncelake", *parts)),
        )
        self.backlog = Backlog.of(self.source, self.reading(Whole()))
        self.facts = {}

    def reading(self, slice_):
        return Reading("events", slice_, None, self.lake, "pipelines.py")

    def drop(self, name, text="{}\n", at=1):
        (self.land / name).write_text(text)
        os.utime(self.land / name, (at, at))

    def freeze(self, done=None):
        return [batch.number for batch in self.backlog.freeze(done).batches]

    def pin(self, number):
        return self.source.pin(self.reading(Batch("files", number)))

    def commit(self, number, attempt="first", columns=None, **states):
        """Record a batch as its commit would: every file that it reads is done, or as a test says."""
        pins = self.pin(number)
        files = self.backlog.pinned_files(pins)
        given = [states.get(os.path.basename(path).split(".")[0], "done") for path in files["path"].to_pylist()]
        left = [(path, state) for state in ("changed", "gone", "retried", "reopened") for path in pins.get(state, ())]
        out = pa.table({"path": [path for path, _ in left], "state": [state for _, state in left]})
        files = files.append_column("state", pa.array(given, pa.string()))
        for name, values in (columns or {}).items():
            files = files.append_column(name, pa.array(values, pa.string()))
        table = conform(files, OUTCOMES)
        table = pa.concat_tables([table, conform(out, OUTCOMES)]) if left else table
        redo = {"redo": True} if self.backlog.manifests.outcomes(number) is not None else {}
        frozen = dict(self.backlog.manifests.load(number).facts)
        self.facts[number] = {"accounts": encode_files(table), "attempt": attempt, "frozen": frozen, **redo}
        self.backlog.settle(self.facts)
        return [os.path.basename(path) for path in files["path"].to_pylist()]

    def look(self):
        """Return the names of new files and of changed ones."""
        found = self.backlog.look()[1]
        return tuple(
            [os.path.basename(path) for path in part["path"].to_pylist()] for part in (found.new, found.changed)
        )


def quarantined(number, file, line=None, raw=None):
    return QuarantinedRow(number, 0, file, line, None, raw, "broken", datetime(2024, 3, 1, tzinfo=UTC), "quarantined")


def states(folder, rows, done):
    return [row.state for row in true_states(folder.backlog, rows, done)]


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def test_a_changed_file_is_read_as_it_is_now_when_its_batch_is_read_again(folder):
    folder.drop("a.json")
    folder.drop("b.json")
    assert folder.freeze() == [0]
    assert folder.commit(0) == ["a.json", "b.json"]
    folder.drop("a.json", "{}\n{}\n", 2)
    assert folder.look() == ([], ["a.json"])
    assert folder.freeze() == [0]
    assert folder.commit(0, "again") == ["a.json", "b.json"]
    assert folder.backlog.pinned_files(folder.pin(0)).to_pylist()[0]["size"] == 6
    assert folder.look() == ([], [])  # it is known as it was read


def test_a_file_that_changed_before_it_was_read_for_the_first_time_is_left_to_a_later_batch(folder):
    folder.drop("a.json")
    folder.drop("b.json")
    folder.freeze()
    folder.drop("a.json", "{}\n{}\n", 2)
    assert folder.commit(0) == ["b.json"]
    assert folder.freeze(0) == [1]
    assert folder.commit(1) == ["a.json"]
    # The first one has been restored: each file is read once more, by the same batch.
    assert folder.freeze() == [0, 1]
    assert (folder.commit(0, "again"), folder.commit(1, "again")) == (["b.json"], ["a.json"])


def test_a_file_that_was_gone_and_came_back_is_read_by_one_batch(folder):
    folder.drop("a.json")
    folder.drop("b.json")
    folder.freeze()
    os.rename(folder.land / "a.json", folder.root / "away")
    assert folder.commit(0) == ["b.json"]
    os.rename(folder.root / "away", folder.land / "a.json")
    assert folder.freeze(0) == [1]
    assert folder.commit(1) == ["a.json"]
    assert (folder.commit(0, "again"), folder.commit(1, "again")) == (["b.json"], ["a.json"])


def test_a_file_that_is_gone_when_its_batch_is_read_again_is_new_when_it_comes_back(folder):
    folder.drop("a.json")
    folder.freeze()
    folder.commit(0)
    os.rename(folder.land / "a.json", folder.root / "away")
    assert folder.commit(0, "again") == []
    os.rename(folder.root / "away", folder.land / "a.json")
    assert folder.look() == (["a.json"], [])


def test_with_append_a_changed_file_has_a_batch_of_its_own(tmp_path):
    folder = Folder(tmp_path, changed="append")
    folder.drop("a.json")
    folder.freeze()
    folder.commit(0)
    folder.drop("a.json", "{}\n{}\n", 2)
    assert folder.freeze() == [0, 1]
    assert (folder.commit(0, "again"), folder.commit(1)) == ([], ["a.json"])
    assert folder.look() == ([], [])


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_manifest_that_is_missing_stops_the_pipeline_and_is_rebuilt(tmp_path, lost):
    folder = Folder(tmp_path, max_files=1)
    for name in "abc":
        folder.drop(f"{name}.json", at=ord(name))
    assert folder.freeze() == [0, 1, 2]
    for number in range(3):
        folder.commit(number)
    folder.backlog.manifests.remove(lost)
    for done in (2, None):  # also where a restore has undone everything
        with pytest.raises(ManifestsMissing, match=f"batch {lost},"):
            folder.freeze(done)
    assert folder.backlog.rebuild(folder.facts, 2) == [lost]
    assert (folder.freeze(2), folder.look()) == ([], ([], []))


def test_a_cache_of_known_files_never_goes_beyond_a_missing_manifest(tmp_path):
    folder = Folder(tmp_path, max_files=1)
    for name in "abc":
        folder.drop(f"{name}.json", at=ord(name))
    folder.freeze()
    for number in range(3):
        folder.commit(number)
    folder.backlog.manifests.remove(1)
    assert KnownFiles.load(folder.backlog.manifests.folder).compact(always=True).base_number == 0
    folder.backlog.rebuild(folder.facts, 2)
    assert KnownFiles.load(folder.backlog.manifests.folder).compact(always=True).base_number == 2
    folder.backlog.manifests.remove(1)
    assert folder.freeze(2) == []  # what it took in is known
    with pytest.raises(ManifestsMissing):
        folder.freeze(0)  # but it must be read again


@pytest.mark.parametrize("kind", ["manifests", "outcomes"])
def test_a_damaged_manifest_is_replaced_from_the_commits(folder, kind):
    folder.drop("a.json")
    folder.freeze()
    folder.commit(0)
    path = folder.root / f"lake/_oncelake/arrivals/events/{kind}/00000000.parquet"
    path.write_bytes(path.read_bytes()[:100])
    assert folder.backlog.rebuild(folder.facts, 0) == [0]
    assert (folder.freeze(0), folder.look()) == ([], ([], []))


def test_a_damaged_manifest_of_a_batch_that_no_target_has_becomes_empty_and_its_files_are_new(folder):
    folder.drop("a.json")
    folder.freeze()
    path = folder.root / "lake/_oncelake/arrivals/events/manifests/00000000.parquet"
    path.write_bytes(b"")
    assert folder.backlog.rebuild({}, None) == [0]
    assert folder.look() == (["a.json"], [])
    assert folder.backlog.rebuild({}, 0) == []


def test_a_retry_of_a_file_that_is_gone_leaves_it_in_quarantine_and_says_so(folder, monkeypatch):
    monkeypatch.setattr("oncelake.sources.arrivals.retrying.change_state", lambda *_: None)
    folder.drop("a.json")
    folder.drop("b.json")
    folder.freeze()
    folder.commit(0, a="quarantined", b="quarantined")
    (folder.land / "a.json").unlink()
    rows = [quarantined(number, "landing/" + name) for number, name in enumerate(("a.json", "b.json"), 1)]
    (note,) = folder.source.retry_quarantine(folder.reading(Whole()), rows)
    assert "1 entries stay in quarantine" in note
    assert states(folder, rows, 0) == ["quarantined", "retried"]
    assert folder.commit(1) == ["b.json"]
    # The first batch is read again: what was retried stays with the retry.
    assert (folder.commit(0, "again"), folder.commit(1, "again")) == ([], ["b.json"])


def test_a_file_that_a_retry_could_not_read_is_open_again(folder, monkeypatch):
    monkeypatch.setattr("oncelake.sources.arrivals.retrying.change_state", lambda *_: None)
    folder.drop("a.json")
    folder.freeze()
    folder.commit(0, a="quarantined")
    row = quarantined(1, "landing/a.json")
    assert folder.source.retry_quarantine(folder.reading(Whole()), [row]) == ()
    (folder.land / "a.json").unlink()
    assert states(folder, [row], 0) == ["retried"]
    folder.commit(1)
    assert states(folder, [row], 1) == ["quarantined"]


def test_another_row_at_the_place_of_a_retried_one_is_open(folder, monkeypatch):
    monkeypatch.setattr("oncelake.sources.arrivals.retrying.change_state", lambda *_: None)
    folder.drop("a.json")
    folder.freeze()
    folder.commit(0)
    row = quarantined(1, "landing/a.json", line=2, raw=b"{")
    folder.source.retry_quarantine(folder.reading(Whole()), [row])
    assert states(folder, [row, replace(row, raw=b"[")], 0) == ["retried", "quarantined"]


def test_a_file_that_was_ingested_again_is_not_open_and_its_rows_are(tmp_path):
    folder = Folder(tmp_path, changed="append")
    folder.drop("a.json")
    folder.freeze()
    folder.commit(0, a="quarantined")
    folder.drop("a.json", at=2)
    assert folder.freeze(0) == [1]
    folder.commit(1)
    rows = [quarantined(1, "landing/a.json"), quarantined(2, "landing/a.json", line=1, raw=b"{")]
    assert states(folder, rows, 0) == ["quarantined", "quarantined"]
    assert states(folder, rows, 1) == ["replaced", "quarantined"]


@pytest.mark.parametrize(("content", "new"), [("same", []), ("other", ["c.json"]), (None, ["c.json"])])
def test_a_skipped_copy_is_new_when_the_content_of_its_original_is_replaced(tmp_path, content, new):
    folder = Folder(tmp_path, changed="replace", provenance=("file",), duplicates="skip", max_files=1)
    folder.drop("b.json", at=1)
    folder.drop("c.json", at=2)
    assert folder.freeze() == [0, 1]
    folder.commit(0, columns={"hash": ["same"]})
    folder.commit(1, c="duplicate", columns={"hash": ["same"], "duplicate_of": ["landing/b.json"]})
    folder.drop("b.json", at=3)
    assert folder.freeze(1) == [2]
    folder.commit(2, columns={"hash": [content]})
    assert folder.look() == (new, [])
    if new:
        assert folder.freeze(2) == [3]
        assert folder.commit(3) == ["c.json"]
        assert [folder.commit(number, "again") for number in range(4)] == [[], [], ["b.json"], ["c.json"]]


def test_the_run_after_a_plan_freezes_what_the_plan_saw(folder):
    folder.drop("a.json")
    waiting = folder.backlog.waiting(None)
    assert [(batch.number, batch.files) for batch in waiting.batches] == [(0, 1)]
    folder.drop("b.json")  # after the plan: for the next run
    assert folder.freeze() == [0]
    assert folder.commit(0) == ["a.json"]
    assert folder.look() == (["b.json"], [])


def test_a_file_that_another_runner_froze_after_a_plan_is_not_frozen_again(folder):
    folder.drop("a.json")
    folder.backlog.waiting(None)
    other = Folder(folder.root)
    (only,) = other.backlog.freeze(None).batches
    other.commit(only.number)
    assert folder.freeze(only.number) == []


def test_what_a_batch_left_after_a_plan_is_frozen_for_a_later_one(folder):
    folder.drop("a.json")
    assert folder.freeze() == [0]
    folder.backlog.waiting(0)  # the plan takes the file for one of the batch
    folder.drop("a.json", "{}\n{}\n", 2)
    folder.commit(0)  # by another runner, which leaves it
    assert folder.freeze(0) == [1]
