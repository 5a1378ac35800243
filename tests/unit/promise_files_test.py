"""`once.files`: paths that two intervals share are refused, and files that change during a read are noticed."""

import os
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

import oncelake as once
from oncelake.errors import BadDeclaration, SourceChanged, SourceUnreadable
from oncelake.model.contracts import Reading
from oncelake.model.intervals import Grid, Interval


@dataclass(frozen=True)
class Folder:
    root: str

    def file(self, path):
        return f"{self.root}/{path}"


def day(number, length=1):
    return Interval(datetime(2024, 3, number, tzinfo=UTC), datetime(2024, 3, number + length, tzinfo=UTC))


def reading(root, interval, every="day", zone="UTC"):
    return Reading("p", interval, Grid(every, zone), Folder(str(root)), "pipelines.py:1")


def land(root, number, text="{}\n", name="x.json"):
    folder = root / f"landing/2024-03-{number}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder / name


FILES = once.files("landing/{start:%Y-%m-%d}/*.json")


@pytest.mark.parametrize(
    ("every", "zone", "path"),
    [
        ("hour", "UTC", "l/{start:%Y-%m-%d}/*.json"),
        ("hour", "UTC", "l/{start:%Y-%m-%dT%I}/*.json"),
        ("hour", "UTC", "l/{start:%m-%dT%H}/*.json"),
        ("hour", "Europe/Berlin", "l/{start:%Y-%m-%dT%H}/*.json"),
        ("hour", "Australia/Lord_Howe", "l/{start:%Y-%m-%dT%H}/*.json"),
        ("day", "UTC", "l/{start:%Y-%m}/*.json"),
        ("day", "UTC", "l/{start:%m-%d}/*.json"),
        ("day", "UTC", "l/{start:%G-%m-%d}/*.json"),
        ("week", "UTC", "l/{start:%Y-%m}/*.json"),
        ("month", "Europe/Berlin", "l/{start:%m}/*.json"),
    ],
)
def test_a_path_that_two_intervals_share_is_refused(every, zone, path):
    assert "would both read" in once.files(path).problem(Grid(every, zone))


@pytest.mark.parametrize(
    ("every", "zone", "path"),
    [
        ("hour", "UTC", "l/{start:%Y-%m-%dT%H}/*.json"),
        ("hour", "Asia/Kolkata", "l/{start:%Y/%m/%d/%H%M}/*.json"),
        ("hour", "Europe/Berlin", "l/{start:%Y-%m-%dT%H%z}/*.json"),
        ("hour", "Europe/Berlin", "l/{start}/*.json"),
        ("hour", "America/Mexico_City", "l/{start:%Y-%m-%dT%H}/*.json"),
        ("day", "Europe/Berlin", "l/{start:%Y-%m-%d}/*.json"),
        ("day", "UTC", "l/{start:%y%j}/*.json"),
        ("week", "UTC", "l/{start:%G-W%V}/*.json"),
        ("month", "UTC", "l/{start:%Y-%m}/*.json"),
    ],
)
def test_a_path_per_interval_is_fine(every, zone, path):
    assert once.files(path).problem(Grid(every, zone)) is None


def test_the_pipeline_is_refused_when_it_is_declared():
    with pytest.raises(BadDeclaration, match="would both read l/2024"):

        @once.pipeline(
            every="hour",
            start="2024-03-14",
            reads=once.files("l/{start:%Y-%m-%d}/*.json", schema="id long"),
            writes=once.append("t"),
        )
        def load(files):
            return files


def test_a_clock_change_of_the_past_is_refused_when_it_is_read(tmp_path):
    source = once.files("l/{start:%Y-%m-%dT%H}/*.json", missing="empty")
    grid = Grid("hour", "America/Mexico_City")  # no clock changes since 2022
    hours = list(grid.cells(datetime(2021, 10, 31, 5, tzinfo=UTC), datetime(2021, 10, 31, 9, tzinfo=UTC)))
    refused = []
    for hour in hours:
        try:
            source.pin(reading(tmp_path, hour, "hour", "America/Mexico_City"))
        except BadDeclaration:
            refused.append(hour)
    assert refused == hours[1:3]


def test_files_that_change_after_they_were_pinned_fail_the_check(tmp_path):
    file = land(tmp_path, 14)
    pins = FILES.pin(reading(tmp_path, day(14)))
    FILES.verify(reading(tmp_path, day(14)), pins)
    file.write_text('{"id": 12345}\n')
    with pytest.raises(SourceChanged) as raised:
        FILES.verify(reading(tmp_path, day(14)), pins)
    assert raised.value.facts["slice"] == "[2024-03-14, 2024-03-15)"


def test_of_a_range_every_interval_is_checked(tmp_path):
    for number in (14, 15, 16):
        land(tmp_path, number)
    pins = FILES.pin(reading(tmp_path, day(14, 3)))
    FILES.verify(reading(tmp_path, day(14, 3)), pins)
    land(tmp_path, 16, name="y.json")
    FILES.verify(reading(tmp_path, day(14, 2)), pins)
    with pytest.raises(SourceChanged) as raised:
        FILES.verify(reading(tmp_path, day(14, 3)), pins)
    assert raised.value.facts["slice"] == "[2024-03-16, 2024-03-17)"


def test_missing_empty_does_not_hide_a_folder_that_cannot_be_listed(tmp_path):
    source = once.files("landing/{start:%Y-%m-%d}/*.json", missing="empty", schema="id long")
    assert source.pin(reading(tmp_path, day(14)))["count"] == 0
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing/2024-03-14").write_text("no folder")
    with pytest.raises(SourceUnreadable):
        source.pin(reading(tmp_path, day(14)))


def test_what_cannot_be_listed_may_have_changed(tmp_path):
    land(tmp_path, 14)
    pins = FILES.pin(reading(tmp_path, day(14)))
    stats = FILES.stats(reading(tmp_path, day(14)))
    assert stats.changed(day(14), pins) == []
    os.remove(tmp_path / "landing/2024-03-14/x.json")
    assert [why for _, why in stats.changed(day(14), pins)] == [
        "the input files at landing/{start:%Y-%m-%d}/*.json changed"
    ]
    (tmp_path / "landing/2024-03-14").rmdir()
    (tmp_path / "landing/2024-03-14").write_text("no folder")
    assert ["may have changed" in why for _, why in stats.changed(day(14), pins)] == [True]
    assert stats.estimate(day(14)).bytes is None
