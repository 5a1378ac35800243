"""The input that the prover alters: a value changed, a row withdrawn, a row added, in the formats that it can write."""

import json

import pytest

import oncelake as once
from oncelake.model.intervals import parse_interval
from oncelake.proving.altered_input import alter_rows, make_altered_roots, make_early_root

ROWS = [{"id": number, "amount": number * 1.5, "open": True, "at": "2024-03-14"} for number in range(4)]
DAYS = [parse_interval(f"2024-03-{day}T00:00:00Z..2024-03-{day + 1}T00:00:00Z") for day in (14, 15)]


def as_json(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def as_csv(rows):
    return "".join(",".join(map(str, line)) + "\n" for line in [rows[0], *(row.values() for row in rows)])


def project(root, suffix, content):
    for day in (14, 15):
        folder = root / f"landing/2024-03-{day}"
        folder.mkdir(parents=True)
        (folder / f"orders.{suffix}").write_text(content)
    path = f"landing/{{start:%Y-%m-%d}}/*.{suffix}"
    declared = once.pipeline(
        every="day", start="2024-03-14", reads=once.files(path), writes=once.append("t"), name="orders"
    )
    return once.Project.of(declared(lambda files: files), lake=root / "lake", root=root)


def test_a_value_is_changed_a_row_withdrawn_and_a_row_added():
    changed, *kept, new = alter_rows(ROWS)
    assert changed == {**ROWS[0], "amount": 1.0}
    assert kept == ROWS[1:-1]
    assert new == {**ROWS[2], "id": 1009, "amount": 7.0}


@pytest.mark.parametrize(("suffix", "spelled"), [("json", as_json), ("csv", as_csv)])
def test_every_slice_gets_other_rows_and_the_project_keeps_its_own(tmp_path, suffix, spelled):
    opened = project(tmp_path / "project", suffix, spelled(ROWS))
    roots = list(make_altered_roots(opened, "orders", DAYS, tmp_path / "altered", tmp_path / "early"))
    assert roots == [tmp_path / "altered", tmp_path / "early"]
    for day in (14, 15):
        name = f"landing/2024-03-{day}/orders.{suffix}"
        assert (tmp_path / "altered" / name).read_text().splitlines() == spelled(alter_rows(ROWS)).splitlines()
        assert (tmp_path / "project" / name).read_text() == spelled(ROWS)


def test_files_that_cannot_be_altered_give_no_root(tmp_path):
    opened = project(tmp_path / "project", "parquet", "no text")
    assert list(make_altered_roots(opened, "orders", DAYS, tmp_path / "altered", tmp_path / "early")) == []
    assert make_early_root(opened, "orders", DAYS, tmp_path / "early") is None


def test_a_file_of_other_lines_is_left_as_it_is(tmp_path):
    opened = project(tmp_path / "project", "json", "[1, 2]\nno json\n")
    assert list(make_altered_roots(opened, "orders", DAYS, tmp_path / "altered", tmp_path / "early")) == []
