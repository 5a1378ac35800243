"""What holds for streams: twice is once, stopped anywhere is once, two at once is once, a lost answer is once."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import oncelake as once
from oncelake.delta import writes as delta_writes
from oncelake.model import failpoints
from oncelake.model.failpoints import FAILPOINTS, OF_BATCHES
from support.streams import (
    COLUMNS,
    SHAPES,
    changes_source,
    contents,
    expected,
    kafka_source,
    order,
    orders,
    write_project,
)
from support.variants import sample, sampled

SOURCES = ("kafka", "appended", "feed")
ALL = [f"{shape} from {source}" for shape in SHAPES for source in SOURCES]


class Stream:
    """A stream of a shape from a source, and the orders that have come so far."""

    def __init__(self, request, root, spark, named):
        shape, _, source = named.partition(" from ")
        self.root, self.spark, self.shape, self.sent = root, spark, shape, []
        if source == "kafka":
            kafka = request.getfixturevalue("kafka")
            topic = kafka.new_topic()
            reads, self.arrive = kafka_source(kafka, topic), lambda numbers: kafka.produce(topic, *orders(*numbers))
        else:
            reads, self.arrive = changes_source(feed=source == "feed"), self._append
        write_project(root, reads, shape)

    def _append(self, numbers):
        """Append orders to the table that is read, two in a file."""
        for at in range(0, len(numbers), 2):
            rows = [tuple(order(number).values()) for number in numbers[at : at + 2]]
            frame = self.spark.createDataFrame(rows, "id bigint, customer bigint, cents bigint, at bigint, day string")
            frame.select(COLUMNS).coalesce(1).write.format("delta").mode("append").save(
                str(self.root / "lake/orders_in")
            )

    def send(self, *numbers):
        self.arrive(numbers)
        self.sent += numbers
        return self

    def open(self):
        return once.open(self.root, spark=self.spark)

    def is_as_after_one_clean_run(self):
        """Each order counts once in each target, and each target has one commit of each batch."""
        assert contents(self.spark, self.root, self.shape) == expected(self.shape, self.sent)
        for name in SHAPES[self.shape]:
            batches = [entry.slice for entry in self.open().history(name) if entry.slice]
            assert sorted(batches) == [f"batch {number}" for number in range(len(batches))]
            assert len(batches) == len(self.sent) // 2


@pytest.fixture
def stream(request, tmp_path, spark):
    return lambda named: Stream(request, tmp_path, spark, named)


@pytest.mark.parametrize("named", sampled(ALL, 2, "streams twice"))
def test_twice_is_once(stream, named):
    made = stream(named).send(0, 1, 2, 3)
    first, second = made.open().run(), made.open().run()
    assert {work.outcome for work in first.works} == {"committed"}, [work.error for work in first.works]
    assert second.works == ()
    made.send(4, 5).open().run()
    made.is_as_after_one_clean_run()


# No batch here deletes a key, so none prepares tombstones.
POINTS = [*OF_BATCHES, *(point for point in FAILPOINTS if point != "prepared")]
STOPS = [f"{named} at {point}" for named in ALL for point in POINTS]
CHOSEN = {f"three from kafka at {point}" for point in ("checkpoint", "written")}
CHOSEN |= {f"state from kafka at {point}" for point in sample(["batch", "written"], 1, "streams stopped")}


@pytest.mark.parametrize(
    "stop", [pytest.param(each, marks=[] if each in CHOSEN else [pytest.mark.long]) for each in STOPS]
)
def test_stopped_at_any_point_is_once(stream, stopped_at, stop):
    named, _, point = stop.partition(" at ")
    made = stream(named).send(0, 1, 2, 3)
    with stopped_at(point):
        made.open().run()
    report = made.send(4, 5).open().run()
    assert report.outcome == "done", [work.error for work in report.works]
    made.is_as_after_one_clean_run()


@pytest.mark.parametrize("named", sampled(ALL, 1, "streams at once"))
def test_run_by_two_at_once_is_once_and_the_second_is_busy(stream, named):
    made = stream(named).send(0, 1, 2, 3)
    reports = []

    def run_another(point):
        if point == "batch" and not reports:
            reports.append(None)
            with ThreadPoolExecutor(1) as pool:
                reports[0] = pool.submit(made.open().run).result()

    failpoints.watch(run_another)
    try:
        first = made.open().run()
    finally:
        failpoints.watch(None)
    assert (first.outcome, reports[0].outcome, reports[0].exit_code) == ("done", "busy", 4)
    made.is_as_after_one_clean_run()


@pytest.mark.parametrize("named", sampled(ALL, 1, "streams lost"))
def test_a_commit_whose_answer_was_lost_is_reported_as_committed(stream, named, monkeypatch):
    real, merge, lost = delta_writes._writer, delta_writes.merge, []

    class AnswerLost:
        def __init__(self, writer):
            self.writer = writer

        def __getattr__(self, name):
            found = getattr(self.writer, name)
            return (lambda *a, **k: AnswerLost(found(*a, **k))) if name != "save" else self._save

        def _save(self, path):
            self.writer.save(path)
            lost.append(path)
            raise ConnectionError("the answer was lost")

    def merged(*given, **more):
        merge(*given, **more)
        lost.append(given)
        raise ConnectionError("the answer was lost")

    made = stream(named).send(0, 1, 2, 3)
    monkeypatch.setattr(delta_writes, "_writer", lambda frame, stamp: AnswerLost(real(frame, stamp)))
    monkeypatch.setattr(delta_writes, "merge", merged)
    report = made.open().run()
    assert lost
    assert {work.outcome for work in report.works} == {"committed"}, [work.error for work in report.works]
    made.is_as_after_one_clean_run()
