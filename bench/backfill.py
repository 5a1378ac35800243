"""Backfill: ranges of days against one write per day and one job for all days; planning; and other tools."""

import itertools
import tempfile
from datetime import date, timedelta
from functools import partial
from pathlib import Path

import oncelake as once
from bench import days, peers, planning
from bench.clock import best_of, figure
from oncelake.spark.session import open_session

START = date(2023, 1, 1)
SMALL, YEAR, SEPARATE = 30, 365, 60
SMALL_ROWS, YEAR_ROWS = 3_000, {"year": 2_000_000, "large_year": 20_000_000}
COLUMNS = ("id", "id % 1000 AS customer", "id % 977 * 0.5D AS amount", "concat('order ', id) AS note")
PIPELINES = f"""
import oncelake as once
from bench.backfill import newest, paid

def declare(name, function, **options):
    @once.pipeline(
        name=name, every="day", start="{START}", reads=once.table("raw.orders", time="ordered_at"),
        writes=once.replace_interval("silver." + name, time="day"), **options,
    )
    def pipeline(rows):
        return function(rows)

declare("orders", paid)
declare("newest", newest)
declare("newest_separate", newest, combine_intervals=False)
"""


def paid(rows):
    """Transform row by row: a range of days is computed in one job."""
    return rows.where("amount > 100").selectExpr("*", "to_date(ordered_at) AS day")


def newest(rows):
    """Aggregate all rows of a day: a range of days is computed day by day."""
    return once.latest(paid(rows), keys="customer", by="ordered_at")


def measure():
    yield from planning.measure()
    yield from peers.measure()
    spark = open_session({"spark.driver.memory": "6g"})
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(spark, Path(folder))
        for part in (_small_table, _small_files, _year, _separate):
            yield from part(stage)


class Stage:
    """A session, the source tables, and a new project with an empty lake for every round."""

    def __init__(self, spark, folder):
        self.spark, self.folder, self.numbers = spark, folder, itertools.count()
        self._make_source("small", SMALL, SMALL_ROWS, files=1)
        for name, rows in YEAR_ROWS.items():
            self._make_source(name, YEAR, rows, files=12)

    def _make_source(self, name, length, rows, files):
        step = length * 86_400_000_000 // rows
        at = f"timestamp_micros(unix_micros(TIMESTAMP'{START} 00:00:00') + id * {step}) AS ordered_at"
        frame = self.spark.range(0, rows, 1, files).selectExpr(*COLUMNS, at)
        frame.write.format("delta").save(str(self.folder / name / "orders"))

    def project(self, source):
        """Create a project whose lake contains only that source, at a path that no cache contains."""
        root = self.empty()
        (root / "oncelake.yaml").write_text("lake: lake\npipelines: pipelines.py\n")
        (root / "pipelines.py").write_text(PIPELINES)
        (root / "lake").mkdir()
        (root / "lake" / "raw").symlink_to(self.folder / source)
        return root

    def landing(self):
        """Create a project with files for every day."""
        root = self.empty()
        days.make_project(root, SMALL)
        return root

    def empty(self):
        root = self.folder / f"round{next(self.numbers)}"
        root.mkdir()
        return root

    def ours(self, name, first, length, root):
        """Run oncelake over a range."""
        report = once.open(root, spark=self.spark).run(name, start=str(first), end=str(first + timedelta(length)))
        assert report.outcome == "done", report

    def source(self, root):
        return self.spark.read.format("delta").load(str(root / "lake" / "raw" / "orders"))


def _save(frame, root, **options):
    """Write by hand: replace the table or a part of it."""
    frame.write.format("delta").mode("overwrite").options(**options).save(str(root / "by_hand"))


def _small_table(stage):
    def by_hand(root):
        for day in (START + timedelta(number) for number in range(SMALL)):
            rows = stage.source(root).where(f"ordered_at >= '{day}' AND ordered_at < '{day + timedelta(1)}'")
            _save(paid(rows), root, replaceWhere=f"day = '{day}'")

    jobs = {"ours": partial(stage.ours, "orders", START, SMALL), "by_hand": by_hand}
    what = f"{SMALL} small days of a table: ours / replaceWhere day by day"
    yield _compare(stage, what, "≤ 0.15", partial(stage.project, "small"), "lake/silver/orders", jobs)


def _small_files(stage):
    def by_hand(root):
        for day in (days.FIRST + timedelta(number) for number in range(SMALL)):
            rows = stage.spark.read.json(str(root / "landing" / str(day) / "*.json"))
            rows = rows.selectExpr("amount", "id", "to_timestamp(ordered_at) AS ordered_at")
            _save(rows, root, replaceWhere=f"ordered_at >= '{day}' AND ordered_at < '{day + timedelta(1)}'")

    jobs = {"ours": partial(stage.ours, "orders", days.FIRST, SMALL), "by_hand": by_hand}
    what = f"{SMALL} small days of files: ours / replaceWhere day by day"
    yield _compare(stage, what, "≤ 0.15", stage.landing, "lake/bronze/orders", jobs)


def _year(stage):
    jobs = {
        "ours": partial(stage.ours, "orders", START, YEAR),
        "by_hand": lambda root: _save(paid(stage.source(root)), root),
    }
    for source, rows in YEAR_ROWS.items():
        what = f"{YEAR} days, {rows:,} rows: ours / one job that writes the whole table"
        yield _compare(stage, what, "≤ 1.3", partial(stage.project, source), "lake/silver/orders", jobs)


def _separate(stage):
    """Measure days that are computed one by one: committed as one range, and committed separately."""
    jobs = {
        "combined": partial(stage.ours, "newest", START, SEPARATE),
        "separate": partial(stage.ours, "newest_separate", START, SEPARATE),
    }
    found = best_of(2, partial(stage.project, "year"), **jobs)
    what = f"{SEPARATE} days of a function that aggregates a day: ours / ours with combine_intervals=False"
    yield figure(what, round(found["combined"] / found["separate"], 3), "×", "—", **found)


def _compare(stage, what, goal, fresh, table, jobs):
    """Compare our time with that of the hand-written job, after checking that both wrote the same table."""
    roots = {}

    def job(name, root):
        jobs[name](root)
        roots[name] = root

    found = best_of(3, fresh, **{name: partial(job, name) for name in jobs})
    tables = {"ours": roots["ours"] / table, "by_hand": roots["by_hand"] / "by_hand"}
    assert once.fingerprint(tables["ours"]) == once.fingerprint(tables["by_hand"]), what
    return figure(what, round(found["ours"] / found["by_hand"], 3), "×", goal, **found)
