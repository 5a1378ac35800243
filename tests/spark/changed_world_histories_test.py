"""Random histories of a project whose world changes, against a model of it in plain Python: runs, crashes, input that is
corrected or delivered again, days that fail, restatements, restores and rebuilds.
"""

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, Phase, assume, given, seed, settings
from hypothesis import strategies as st

import oncelake as once
from oncelake.errors import BadVersion, OncelakeError
from support.lakes import DAYS
from support.variants import number_of, sample

TARGET = "silver.orders"
NOW = {"start": DAYS[0], "end": "2024-03-17"}
FAILPOINTS = ("pinned", "claimed", "writing", "prepared", "written", "settled")
STEPS = ("run", "run", "run_day", "crash", "correct", "correct", "redeliver", "poison", "restate", "rebuild", "restore")
Row = tuple[int, str, int]


@dataclass(frozen=True)
class State:
    """What a version of the table holds: of every finished day the rows it was made from, and all rows ever applied."""

    done: dict[str, tuple[Row, ...]] = field(default_factory=dict)
    applied: tuple[Row, ...] = ()

    def write(self, day, rows):
        return State({**self.done, day: rows}, (*self.applied, *rows))


def every_row(state):
    return Counter((key, at, cents) for rows in state.done.values() for key, at, cents in rows)


def latest_row(state):
    latest = {}
    for key, at, cents in sorted(state.applied, key=lambda row: row[1]):
        latest[key] = (key, at, cents)
    return Counter(latest.values())


def sums(state):
    found = Counter()
    for rows in state.done.values():
        for key, _, cents in rows:
            found[key] += cents
    return Counter(found.items())


@dataclass(frozen=True)
class Kind:
    """A pattern, what its table holds, and whether its days can be done again one by one."""

    pattern: object
    holds: Callable[[State], Counter]
    columns: tuple[str, ...] = ("key", "at", "cents")
    restates: bool = True


KINDS = {
    "replace_interval": Kind(once.replace_interval(TARGET, time="day"), every_row),
    "append": Kind(once.append(TARGET), every_row, restates=False),
    "merge": Kind(once.merge(TARGET, keys="key", latest_by="at"), latest_row),
    "aggregate, adding": Kind(once.aggregate(TARGET, keys="key", add="cents"), sums, ("key", "cents"), restates=False),
}


def make_pipeline(kind):
    from pyspark.sql import functions as F

    @once.pipeline(
        every="day",
        start=DAYS[0],
        reads=once.files("landing/{start:%Y-%m-%d}/*.json", schema="key int, at string, cents long"),
        writes=kind.pattern,
    )
    def orders(files):
        bad = F.when(F.col("cents") < 0, F.raise_error(F.lit("poison")).cast("long")).otherwise(F.col("cents"))
        rows = files.withColumn("cents", bad)
        if kind.holds is sums:
            return rows.groupBy("key").agg(F.sum("cents").alias("cents"))
        return rows.withColumn("day", F.to_date("at"))

    return orders


class World:
    """The project and the model of it, one step after the other."""

    def __init__(self, root, spark, kind, stopped_at):
        self.root, self.spark, self.kind, self.stopped_at = root, spark, kind, stopped_at
        self.pipeline = make_pipeline(kind)
        self.state, self.pending, self.poisoned, self.input = State(), set(), set(), {}
        self.versions, self.number = [], 0
        for index, day in enumerate(DAYS):
            self.input[day] = tuple((k, f"{day}T0{index}:00:{k:02}", 100 * index + k) for k in range(4))
            self.land(day)

    @property
    def project(self):
        """As the next process would see it: nothing is remembered."""
        return once.Project.of(self.pipeline, lake=self.root / "lake", root=self.root, spark=self.spark)

    def land(self, day, name="orders"):
        folder = self.root / "landing" / day
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        rows = [*self.input[day], *([(9, f"{day}T09:00:00", -1)] if day in self.poisoned else [])]
        lines = (json.dumps(dict(zip(("key", "at", "cents"), row, strict=True))) + "\n" for row in rows)
        (folder / f"{name}.json").write_text("".join(lines))

    def step(self, how, which, point):
        self.number += 1
        day = DAYS[which % len(DAYS)]
        getattr(self, how)(*([point] if how == "crash" else [which] if how == "restore" else [day]))
        found = self.content()
        assert found == (self.kind.holds(self.state) if self.state.done else Counter()), (how, day)
        if (version := self.version()) is not None:
            self.versions.append((version, self.state))

    def run(self, _, days=DAYS):
        report = self.project.run("orders", **NOW) if days == DAYS else self.project.run("orders", date=days[0])
        expected = "done"
        for day in days:
            if day in self.state.done and day not in self.pending:
                continue
            if day in self.poisoned:
                expected = "failed"
                continue
            self.state = self.state.write(day, self.input[day])
            self.pending.discard(day)
        assert report.outcome == expected, [work.error for work in report.works]

    def run_day(self, day):
        self.run(day, (day,))

    def crash(self, point):
        with self.stopped_at(point, reached=False):
            self.project.run("orders", **NOW)
        self.run(None)

    def correct(self, day):
        """A row is changed, one withdrawn, one added; and whatever was wrong with the day is mended."""
        at = f"{day}T{10 + self.number:02}"
        kept = [(key, f"{at}:00:{key:02}", cents + 1) for key, _, cents in self.input[day][1:]]
        self.input[day] = (*kept, (4 + self.number % 3, f"{at}:30:00", self.number))
        self.poisoned.discard(day)
        self.land(day)

    def redeliver(self, day):
        self.land(day, f"again-{self.number}")

    def poison(self, day):
        self.poisoned.add(day)
        self.land(day)

    def restate(self, day):
        if not self.kind.restates or day not in self.state.done:
            with pytest.raises(OncelakeError) as refused:
                self.project.restate("orders", date=day)
            assert refused.value.code in ("cannot_restate", "nothing_to_restate")
            return
        report = self.project.restate("orders", date=day)
        if day in self.poisoned:
            assert report.outcome == "failed"
            self.pending.add(day)
        else:
            assert report.outcome == "done", [work.error for work in report.works]
            self.state = self.state.write(day, self.input[day])
            self.pending.discard(day)

    def rebuild(self, _):
        if not self.state.done:
            return
        done = sorted(self.state.done)
        failed = self.project.rebuild(TARGET).failed
        assert (failed is not None) == bool(self.poisoned & set(done))
        if failed is not None:
            return
        self.state = State()
        for day in done:
            self.state = self.state.write(day, self.input[day])

    def restore(self, which):
        if not self.versions:
            return
        version, state = self.versions[which % len(self.versions)]
        if version == self.version():
            with pytest.raises(BadVersion):
                self.project.restore(TARGET, to=version)
            return
        self.project.restore(TARGET, to=version)
        self.state, self.pending = state, set()

    def version(self):
        path = self.root / "lake" / "silver" / "orders"
        return DeltaTable(str(path)).version() if path.exists() else None

    def content(self):
        path = self.root / "lake" / "silver" / "orders"
        if not path.exists():
            return Counter()
        rows = DeltaTable(str(path)).to_pyarrow_table(columns=list(self.kind.columns)).to_pylist()
        return Counter(tuple(row[name] for name in self.kind.columns) for row in rows)


def histories(steps):
    step = st.tuples(st.sampled_from(STEPS), st.integers(0, 11), st.sampled_from(FAILPOINTS))
    return st.lists(step, min_size=steps, max_size=steps)


def eventful(history):
    """Whether a history is worth the time: something is written, the world changes, and something is done about it."""
    names = [how for how, _, _ in history]
    changes = {"correct", "redeliver", "poison"} & set(names)
    answers = {"restate", "rebuild", "restore"} & set(names)
    return names[0] in ("run", "run_day", "crash") and bool(changes) and bool(answers) and len(set(names)) > 4


def random_histories(steps, examples):
    # Not shrunk: every history that is tried takes many seconds, and seven steps can be read as they are.
    effort = settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        database=None,
        phases=[Phase.generate],
    )
    return lambda test: seed(number_of("changed world"))(effort(given(history=histories(steps))(test)))


CHOSEN = sample(list(KINDS), 1, "changed world")
NOW_AND_LATER = [pytest.param(name, marks=[] if name in CHOSEN else [pytest.mark.long]) for name in KINDS]


def played(tmp_path_factory, spark, stopped_at, name, history):
    assume(eventful(history))
    world = World(tmp_path_factory.mktemp("world"), spark, KINDS[name], stopped_at)
    for step in history:
        world.step(*step)
    world.poisoned.clear()
    for day in DAYS:
        world.land(day)
    world.step("run", 0, "")
    assert set(world.state.done) == set(DAYS)


@pytest.mark.parametrize("name", NOW_AND_LATER)
@random_histories(steps=7, examples=1)
def test_a_project_in_a_changing_world_is_what_the_model_says(tmp_path_factory, spark, stopped_at, name, history):
    played(tmp_path_factory, spark, stopped_at, name, history)


@pytest.mark.long
@pytest.mark.parametrize("name", KINDS)
@random_histories(steps=14, examples=8)
def test_a_project_in_a_world_that_changes_often_is_what_the_model_says(
    tmp_path_factory, spark, stopped_at, name, history
):
    played(tmp_path_factory, spark, stopped_at, name, history)
