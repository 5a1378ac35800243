"""Which files have the content of another one."""

import pytest

from oncelake.sources.arrivals.contents import Contents, find_copies, identity


@pytest.fixture
def contents(tmp_path):
    return Contents(str(tmp_path))


def test_the_first_file_with_a_hash_is_found_in_earlier_batches_only(contents):
    contents.write(0, ["a", "b"], ["1", "2"])
    contents.write(1, ["c"], ["1"])
    assert contents.find({"1", "2", "3"}, 2) == {"1": "a", "2": "b"}
    assert contents.find({"1"}, 0) == {}


def test_content_that_was_replaced_is_not_there_any_more(contents):
    contents.write(0, ["a"], ["1"])
    contents.write(1, ["a"], [None], replaces=True)
    assert contents.find({"1"}, 2) == {}
    contents.write(2, ["a"], ["1"], replaces=True)
    assert contents.find({"1"}, 3) == {"1": "a"}
    assert contents.find({"1"}, 1) == {"1": "a"}


def test_the_cache_has_what_the_batches_have_and_gives_way_to_a_batch_that_is_read_again(contents, tmp_path):
    for number in range(60):
        contents.write(number, [f"f{number}"], [f"{number}"])
    contents.compact(55)
    assert [path.name for path in tmp_path.glob("hashes-*")] == ["hashes-00000055.parquet"]
    assert contents.find({"3", "55", "58"}, 60) == {"3": "f3", "55": "f55", "58": "f58"}
    contents.write(50, ["other"], ["50"])
    assert contents.find({"50"}, 60) == {"50": "other"}
    contents.compact(59)
    next(tmp_path.glob("hashes-*")).write_bytes(b"damaged")
    assert contents.find({"50", "3"}, 60) == {"3": "f3", "50": "other"}


def test_copies_within_a_batch():
    assert find_copies(["a", "b", "c", "d"], ["1", "1", None, "2"], {"2": "z"}) == {1: "a", 3: "z"}


def test_files_in_folders_that_name_other_columns_are_no_copies(contents):
    contents.write(0, ["region=EU/x", "y"], ["1", "2"])
    same, other, plain = (identity("1", path) for path in ("a/region=EU/z", "region=US/x", "x"))
    assert contents.find({same, other, plain}, 1) == {same: "region=EU/x"}
    assert find_copies(["region=US/x", "region=US/y"], [other, other], {}) == {1: "region=US/x"}
