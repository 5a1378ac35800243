"""The files of checkpoints, as kills, copies and hands leave them: what is found, and what a fix makes of them."""

import json
import struct
import zlib

import pytest

from oncelake.model.streams import BatchOffsets
from oncelake.operations.checkpoint_findings import Recorded, examine_checkpoint
from oncelake.storage.stream_checkpoint import load_checkpoint

QUERY = "11111111-2222-3333-4444-555555555555"
METADATA = {"batchWatermarkMs": 7, "batchTimestampMs": 1, "conf": {"spark.sql.shuffle.partitions": "2"}}


def offsets(end):
    return BatchOffsets((json.dumps({"topic": {"0": end}}),), METADATA)


def pins(number):
    ends = {"offsets": offsets(2 * number + 2).document(), "from": list(offsets(2 * number).sources)}
    return {"stream": f"1:{QUERY}", "batch": number, **ends}


def recorded(bronze=2, silver=None, known=(2,)):
    silver = bronze if silver is None else silver
    return Recorded(QUERY, {"bronze": bronze, "silver": silver}, {number: pins(number) for number in known})


def crc(content, size=512):
    sums = [zlib.crc32(content[at : at + size]) for at in range(0, len(content), size)]
    return b"crc\x00" + struct.pack(">i", size) + b"".join(struct.pack(">I", each) for each in sums)


class Folder:
    """A checkpoint whose batches 0, 1 and 2 are finished."""

    def __init__(self, path):
        self.path = path
        self.write("metadata", json.dumps({"id": QUERY}))
        for number in range(3):
            self.write(f"offsets/{number}", offsets(2 * number + 2).file_text())
            self.write(f"commits/{number}", 'v1\n{"nextBatchWatermarkMs":7}')

    def write(self, name, content):
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        data = content if isinstance(content, bytes) else content.encode()
        file.write_bytes(data)
        if not name.startswith(".") and "tmp" not in name and name[-1].isdigit():
            (file.parent / f".{file.name}.crc").write_bytes(crc(data))

    def remove(self, name):
        (self.path / name).unlink()

    def examine(self, known=None, **options):
        return examine_checkpoint(str(self.path), known or recorded(), **options)

    def codes(self, known=None):
        return [(each.code, each.severity) for each in self.examine(known)]

    def fix(self, known=None):
        for each in self.examine(known):
            if each.apply:
                each.apply()
        return self.codes(known)

    def content(self, name):
        return (self.path / name).read_text()


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path / "checkpoint")


def test_a_sound_checkpoint_has_no_findings(folder):
    assert folder.codes() == []


def test_no_checkpoint_has_no_findings(tmp_path):
    assert examine_checkpoint(str(tmp_path / "nothing"), recorded()) == []


@pytest.mark.parametrize(
    "torn", ["", "v1\n", "v1\n{}\n", 'v1\n{"batchWatermarkMs":0', 'v1\n{}\n{"t":{"0":4', 'v1\n{}\n{"t":{"0":4}']
)
def test_torn_offsets_of_a_batch_that_nobody_has_are_removed(folder, torn):
    folder.write("offsets/3", torn)
    assert folder.codes() == [("torn_offsets", "error")]
    assert folder.fix() == []
    assert not (folder.path / "offsets/3").exists()
    assert not (folder.path / "offsets/.3.crc").exists()


def test_torn_offsets_of_a_batch_that_a_target_has_are_written_as_recorded(folder):
    folder.write("offsets/2", "")
    folder.remove("commits/2")
    folder.remove("commits/.2.crc")
    known = recorded(bronze=2, silver=1)
    assert folder.codes(known) == [("torn_offsets", "error")]
    assert folder.fix(known) == []
    assert folder.content("offsets/2") == offsets(6).file_text()


def test_torn_offsets_that_nothing_records_are_not_fixed(folder):
    folder.write("offsets/2", "")
    known = recorded(known=())
    assert folder.fix(known) == [("torn_offsets", "error")]


def test_torn_offsets_of_old_batches_do_not_matter(folder):
    folder.write("offsets/0", "")
    assert folder.codes() == [("torn_offsets", "note")]


def test_the_first_torn_offsets_of_a_stream_with_state_are_not_removed(folder):
    for number in range(3):
        for name in (f"offsets/{number}", f"commits/{number}", f"offsets/.{number}.crc", f"commits/.{number}.crc"):
            folder.remove(name)
    folder.write("offsets/0", "")
    folder.write("state/0/0/1.delta", "rows")
    known = recorded(bronze=-1, known=())
    assert folder.fix(known) == [("torn_offsets", "error")]


def test_a_torn_commit_is_removed_and_its_batch_run_again(folder):
    folder.write("commits/2", "v1")
    assert folder.codes() == [("torn_commit", "error")]
    assert folder.fix() == []
    checkpoint = load_checkpoint(str(folder.path))
    assert (checkpoint.begun, checkpoint.finished) == (2, 1)


def test_a_commit_that_is_cut_in_the_middle_is_torn(folder):
    folder.write("commits/2", 'v1\n{"nextBatchWat')
    assert folder.codes() == [("torn_commit", "error")]
    assert load_checkpoint(str(folder.path)).torn == ("commits/2",)


def test_the_checksum_of_a_file_that_is_gone_is_left_over(folder):
    folder.remove("commits/2")
    assert load_checkpoint(str(folder.path)).temporary == ("commits/.2.crc",)


def test_a_query_whose_state_is_gone_is_found(folder):
    assert [each.code for each in folder.examine(stateful=True)] == ["state_missing"]
    (folder.path / "state").mkdir()
    folder.write("state/0/0/1.delta", "x")
    assert folder.examine(stateful=True) == []


def test_a_torn_commit_before_a_begun_batch_is_written_with_its_watermark(folder):
    folder.write("offsets/3", offsets(8).file_text())
    folder.write("commits/2", "")
    assert folder.fix() == []
    assert folder.content("commits/2") == 'v1\n{"nextBatchWatermarkMs":7}'


def test_a_missing_commit_before_a_begun_batch_is_written(folder):
    folder.write("offsets/3", offsets(8).file_text())
    folder.remove("commits/2")
    folder.remove("commits/.2.crc")
    assert folder.codes() == [("commits_out_of_step", "warning")]
    # Spark runs batch 3 and no other: batch 2 counts as finished, so that a target that lacks it gets it.
    assert load_checkpoint(str(folder.path)).finished == 2
    assert folder.fix() == []
    assert load_checkpoint(str(folder.path)).commits == (0, 1, 2)


def test_commits_without_offsets_are_found_and_the_offsets_written(folder):
    for name in ("offsets/1", "offsets/2", "offsets/.1.crc", "offsets/.2.crc"):
        folder.remove(name)
    assert folder.codes() == [("offsets_missing", "error")] * 2
    assert folder.fix() == []
    assert [folder.content(f"offsets/{n}").splitlines()[2] for n in (1, 2)] == [
        *offsets(4).sources,
        *offsets(6).sources,
    ]


def test_missing_offsets_that_nothing_records_are_not_fixed(folder):
    folder.remove("offsets/2")
    assert folder.fix(recorded(known=())) == [("offsets_missing", "error")]


def test_a_gap_in_old_numbers_does_not_matter(folder):
    folder.write("offsets/3", offsets(8).file_text())
    folder.write("commits/3", 'v1\n{"nextBatchWatermarkMs":7}')
    folder.remove("offsets/1")
    assert folder.codes(recorded(bronze=3)) == [("offsets_gap", "note")]


def test_temporary_files_are_removed(folder):
    names = ["offsets/.3.abc.tmp", "offsets/..3.abc.tmp.crc", "commits/.3.abc.tmp", ".metadata.abc.tmp"]
    for name in names:
        folder.write(name, "half")
    assert folder.codes() == [("temporary_files", "warning")]
    assert folder.fix() == []
    assert not any((folder.path / name).exists() for name in names)


def test_temporary_files_of_the_first_batch_name_the_error_of_spark(tmp_path):
    folder = Folder(tmp_path / "checkpoint")
    for part in ("offsets", "commits"):
        for file in (folder.path / part).iterdir():
            file.unlink()
    folder.write("offsets/.0.abc.tmp", "")
    (finding,) = folder.examine(recorded(bronze=-1, known=()))
    assert "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY" in finding.message


@pytest.mark.parametrize("content", [None, "", '{"id"'])
def test_missing_metadata_is_written_if_the_offsets_are_as_recorded(folder, content):
    folder.remove("metadata") if content is None else folder.write("metadata", content)
    assert folder.codes() == [("missing_metadata", "error")]
    assert folder.fix() == []
    assert json.loads(folder.content("metadata")) == {"id": QUERY}


def test_missing_metadata_of_an_unknown_checkpoint_is_not_written(folder):
    folder.remove("metadata")
    folder.write("offsets/2", offsets(99).file_text())
    assert folder.fix() == [("missing_metadata", "error")]


def test_a_stale_checksum_is_removed_if_the_offsets_are_as_recorded(folder):
    (folder.path / "offsets/.2.crc").write_bytes(crc(b"another content"))
    assert folder.codes() == [("checksum", "error")]
    assert folder.fix() == []


def test_a_stale_checksum_of_unknown_offsets_is_only_said(folder):
    (folder.path / "offsets/.2.crc").write_bytes(b"")
    assert folder.fix(recorded(known=())) == [("checksum", "error")]


def test_a_fix_leaves_no_stale_checksum_behind(folder):
    folder.write("offsets/2", "torn")
    folder.fix()
    assert not (folder.path / "offsets/.2.crc").exists()
