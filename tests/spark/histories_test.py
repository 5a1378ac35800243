"""Random histories of keyed tables against a model of them in plain Python: upserts, deletes, late and repeated batches,
crashes and restatements. Every example carries 50 strands, which share no key: 50 histories for the price of one.
"""

from collections import defaultdict

import pytest
from hypothesis import HealthCheck, assume, given, seed, settings
from hypothesis import strategies as st

import oncelake as once
from support.variants import number_of, sample

STRANDS = 50
SCHEMA = "strand int, k int, at int, v string, gone boolean"
FAILPOINTS = ("claimed", "writing", "prepared", "written", "settled")
KEYED = {"keys": ["strand", "k"], "latest_by": "at", "delete_when": "gone", "exclude": "gone"}


def rows(untimed):
    times = st.integers(0, 4) | st.none() if untimed else st.integers(0, 4)
    row = st.tuples(st.integers(0, STRANDS - 1), st.integers(0, 1), times, st.sampled_from("ab"), st.booleans())
    return st.lists(row, min_size=60, max_size=160)


def histories(untimed, steps):
    """Steps: rows that are new, an earlier batch again under its name or another, restated with more rows; each may be
    stopped at a point and done again.
    """
    step = st.tuples(
        st.sampled_from(["new", "new", "new", "again", "renamed", "restated"]),
        st.integers(0, steps),
        rows(untimed),
        st.none() | st.sampled_from(FAILPOINTS),
    )
    return st.lists(step, min_size=steps, max_size=steps)


def eventful(history):
    """Whether a history is worth the time: hypothesis begins with one in which nothing happens."""
    return len({step[0] for step in history}) > 2 and any(step[3] for step in history)


class Lake:
    """A table written step by step."""

    def __init__(self, spark, folder, pattern, stopped_at):
        self.spark, self.folder, self.pattern, self.stopped_at = spark, str(folder), pattern, stopped_at
        self.done, self.seen = [], []

    def write(self, work, batch, generation=1, stop=None):
        with self.stopped_at(stop, reached=False):
            frame = self.spark.createDataFrame(batch, SCHEMA)
            return once.write(frame, self.pattern, work=f"work/{work}", lake=self.folder, generation=generation).outcome
        return None

    def step(self, number, step):
        how, which, batch, stop = step
        work, generation = number, 1
        if self.done and how != "new":
            work, generation, before = self.done[which % len(self.done)]
            batch = before if how != "restated" else before + batch
            generation += how == "restated"
            work, generation = (number, 1) if how == "renamed" else (work, generation)
        if stop:
            self.write(work, batch, generation, stop)
        outcome = self.write(work, batch, generation)
        assert outcome in ("committed", "already_done")
        assert stop or outcome == ("already_done" if how == "again" and self.done else "committed")
        self.done = [each for each in self.done if each[0] != work] + [(work, generation, batch)]
        self.seen += batch

    def content(self, *columns):
        table = self.spark.read.format("delta").load(f"{self.folder}/t")
        return sorted(map(tuple, table.select(*columns).collect()), key=repr)


def events(seen):
    """What is known of every key: of one time the deletes, else every content there was."""
    found = defaultdict(lambda: defaultdict(set))
    for strand, k, at, v, gone in seen:
        found[strand, k][-1 if at is None else at].add((gone, v))
    return {
        key: {at: {(True, "")} if any(gone for gone, _ in each) else each for at, each in times.items()}
        for key, times in found.items()
    }


def merged(seen):
    """The rows a merge may leave: of every key one of the latest."""
    for (strand, k), times in events(seen).items():
        last = max(times)
        candidates = {(strand, k, None if last < 0 else last, v) for gone, v in times[last] if not gone}
        if candidates:
            yield candidates


def versions(seen):
    """The versions of every key of which no two rows share a time."""
    for (strand, k), times in events(seen).items():
        if any(len(each) > 1 for each in times.values()):
            continue
        history = sorted((at, *next(iter(each))) for at, each in times.items())
        kept = [e for i, e in enumerate(history) if e[1] or not i or history[i - 1][1:] != e[1:]]
        for index, (at, gone, v) in enumerate(kept):
            if not gone:
                yield strand, k, v, at, kept[index + 1][0] if index + 1 < len(kept) else None


@pytest.fixture
def folders(tmp_path_factory):
    return lambda: tmp_path_factory.mktemp("lake")


def random_history(untimed, steps, examples):
    """Give a test random histories, others with every commit."""
    effort = settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    return lambda test: seed(number_of("histories"))(effort(given(history=histories(untimed, steps))(test)))


@pytest.fixture
def played(spark, folders, stopped_at):
    def played(pattern, history, *columns):
        """The table after a history, and what it has seen; one clean write of all of it leaves the same."""
        lake, clean = (Lake(spark, folders(), pattern, stopped_at) for _ in range(2))
        for number, step in enumerate(history):
            lake.step(number, step)
        clean.write("all", lake.seen)
        found = lake.content(*columns)
        assert found == clean.content(*columns)
        return found, lake.seen

    return played


def merged_is_what_the_model_says(played, history):
    assume(eventful(history))
    found, seen = played(once.merge("t", **KEYED), history, "strand", "k", "at", "v")
    expected = list(merged(seen))
    assert len(found) == len(expected)
    assert all(any(row in candidates for candidates in expected) for row in found)


def history_is_what_the_model_says(played, history):
    assume(eventful(history))
    columns = ("strand", "k", "v", "valid_from", "valid_to", "is_current")
    rows, seen = played(once.scd2("t", **KEYED), history, *columns)
    assert all((row[-2] is None) == row[-1] for row in rows)
    found = [row[:-1] for row in rows]
    expected = list(versions(seen))
    assert expected
    assert set(expected) <= set(found)
    tied = {row[:2] for row in found} - {row[:2] for row in expected}
    assert all(row[:2] in tied or row in expected for row in found)


def sampled_now(pattern):
    """Mark a test as long unless the commit chose its pattern."""
    chosen = pattern in sample(["merge", "scd2"], 1, "histories")
    return (lambda test: test) if chosen else pytest.mark.long


@sampled_now("merge")
@random_history(untimed=True, steps=5, examples=1)
def test_a_merged_table_is_what_the_model_says(played, history):
    merged_is_what_the_model_says(played, history)


@sampled_now("scd2")
@random_history(untimed=False, steps=5, examples=1)
def test_a_history_is_what_the_model_says(played, history):
    history_is_what_the_model_says(played, history)


@pytest.mark.long
@random_history(untimed=True, steps=8, examples=3)
def test_a_table_merged_from_many_batches_is_what_the_model_says(played, history):
    merged_is_what_the_model_says(played, history)


@pytest.mark.long
@random_history(untimed=False, steps=8, examples=3)
def test_a_history_of_many_batches_is_what_the_model_says(played, history):
    history_is_what_the_model_says(played, history)
