"""The real commit protocol in the same order of steps as the model. Where the two disagree, one of them is wrong."""

import json
import os
import queue
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest

import oncelake as once
from oncelake.model import failpoints
from oncelake.model.events import RunPlanned
from support.lakes import DAYS, land, orders_of, rows
from support.orders import FILES, SCHEMA, open_orders, reopen_orders
from support.runner_model import (
    BOTH,
    CELLS,
    FIRST,
    LOCK,
    NO_LOCK,
    SCENES,
    SECOND,
    Model,
    Runner,
    Work,
    World,
    cells_of,
    content,
    explore,
)
from support.variants import sampled

PATTERNS = {False: once.replace_interval("silver.orders", time="ordered_at"), True: once.append("silver.orders")}
SPANS = {BOTH: {"start": DAYS[0], "end": DAYS[2]}, FIRST: {"date": DAYS[0]}, SECOND: {"date": DAYS[1]}}
# Where the real run can be stopped, and which point of the model that is.
STOPS = {
    **{point: point for point in ("planned", "requested", "pinned", "claimed", "writing", "written", "recorded")},
    **dict.fromkeys(("read", "transformed", "created"), "writing"),
    "settled": "written",
}
LONGEST = 300


def opened(root, spark, pattern):
    """Return a project whose rows say which thread wrote them; a thread with a pipe `hold` waits in its write."""
    from pyspark.sql import functions as F

    @once.pipeline(every="day", start=DAYS[0], reads=once.files(FILES, schema=SCHEMA), writes=pattern)
    def orders(files):
        me = threading.current_thread().name
        hold, go = str(root / f"hold {me}"), str(root / f"go {me}")

        @F.udf("long")
        def held(number):
            # Opening a pipe waits for whoever opens its other end.
            if number == 0:
                open(hold, "w").close()
                open(go).close()
            return number

        frame = files.select("id", F.to_timestamp("at").alias("ordered_at"), F.lit(me).alias("by"))
        return frame.withColumn("id", held("id")) if os.path.exists(hold) else frame

    project = once.Project.of(orders, lake=root / "lake", root=root, spark=spark)
    project.settings = replace(project.settings, lock_timeout=0)
    return project


class Lockstep:
    """Real runners in threads of their own, of which one at a time goes on until it is told to stop."""

    def __init__(self, root, open_project, runners):
        self.root, self.open_project = root, open_project
        self.reached = queue.Queue()
        self.turns = {runner.name: threading.Semaphore(0) for runner in runners}
        self.reports = {}
        for runner in runners:
            threading.Thread(target=self._run, args=[runner], name=runner.name, daemon=True).start()

    def go(self, name, until):
        """Let one go on until it has come to a point, or to its end."""
        if name in self.reports:
            return
        if until == "begun":
            self._hold(name)
        self.turns[name].release()
        while (at := self.reached.get(timeout=LONGEST)) not in ((name, until), (name, "ended")):
            self.turns[at[0]].release()

    def on(self, event):
        if isinstance(event, RunPlanned):
            self.stop("planned")

    def stop(self, point):
        name = threading.current_thread().name
        if name in self.turns and point in STOPS:
            self._wait(name, point)

    def _wait(self, name, point):
        self.reached.put((name, point))
        self.turns[name].acquire()

    def _run(self, runner):
        self.turns[runner.name].acquire()
        project = self.open_project()
        act = project.restate if runner.restates else project.run
        try:
            self.reports[runner.name] = act("orders", listener=self, **SPANS[runner.wants]).works
        except once.OncelakeError as error:
            self.reports[runner.name] = error.code
        finally:
            self.reached.put((runner.name, "ended"))

    def _hold(self, name):
        """Have a runner stop in the middle of its write: Delta has looked at the log and computes the rows."""
        pipes = self.root / f"hold {name}", self.root / f"go {name}"
        for pipe in pipes:
            os.mkfifo(pipe)
        threading.Thread(target=self._held, args=[name, *pipes], daemon=True).start()

    def _held(self, name, hold, go):
        hold.open().close()
        hold.unlink()
        if name not in self.reports:
            self._wait(name, "begun")
            go.open("w").close()

    def close(self):
        """Wake up whoever still waits for a runner to write that never came so far."""
        failpoints.watch(None)
        for pipe in self.root.glob("hold *"):
            os.close(os.open(pipe, os.O_RDWR))


def model_of(rules, runners, log, schedule):
    """What the model makes of an order."""
    model, world = Model(rules), World(log, "", runners)
    for name, until in schedule:
        me = next(runner for runner in world.runners if runner.name == name)
        while me.at != "ended":
            world = model.step(me, world)
            me = next(runner for runner in world.runners if runner.name == name)
            if me.at == STOPS.get(until, until):
                break
    return outcome_of(world, rules)


def outcome_of(world, rules):
    """What can be seen at the end: what everybody says of each cell, the markers in the log, and whose rows are there."""
    told = {r.name: {c: (w.generation, how) for w, how in r.says for c in cells_of(w)} for r in world.runners}
    markers = [(commit.work, commit.restate_requests) for commit in world.log]
    whose = {cell: [commit.by for commit in found] for cell, found in content(world.log, rules).items() if found}
    return told, markers, whose


def real_of(root, open_project, runners, log, schedule):
    """What the real commit protocol makes of the same order."""
    before = tuple(Runner(commit.by, commit.work.cells) for commit in log)
    lockstep = Lockstep(root, open_project, (*before, *runners))
    failpoints.watch(lockstep.stop)
    try:
        for name, until in (*((runner.name, "ended") for runner in before), *schedule):
            lockstep.go(name, until)
    finally:
        lockstep.close()
    told = {runner.name: told_of(lockstep.reports[runner.name]) for runner in runners}
    return told, markers_of(root), whose_rows(root)


def told_of(works):
    if isinstance(works, str):
        return {}
    return {
        cell: (work.generation, work.outcome)
        for work in works
        for cell in CELLS
        if work.start[:10] <= DAYS[cell] < work.end[:10]
    }


def markers_of(root):
    """The markers in the log, in their order, as cells."""
    files = sorted((root / "lake/silver/orders/_delta_log").glob("*.json"))
    found = [json.loads(line)["txn"] for file in files for line in file.read_text().splitlines() if '{"txn"' in line]
    markers = []
    for txn in found:
        slice_ = txn["appId"].rpartition("/")[2]
        start, _, end = slice_.removeprefix("restate ").partition("..")
        cells = (DAYS.index(start[:10]), DAYS.index(end[:10]))
        markers.append((Work(cells, txn["version"]), slice_.startswith("restate ")))
    return markers


def whose_rows(root):
    """Who wrote the rows of each cell: a name as often as it wrote all three of them."""
    found = Counter((int(dict(row)["id"]), dict(row)["by"]) for row in rows(root).elements())
    whose = {}
    for cell in CELLS:
        names = Counter(name for (number, name), count in found.items() for _ in range(count) if number // 100 == cell)
        assert all(count % 3 == 0 for count in names.values()), found
        if names:
            whose[cell] = sorted((Counter({name: count // 3 for name, count in names.items()})).elements())
    return whose


@pytest.fixture
def context(tmp_path, spark, monkeypatch):
    """Compare an order in the real commit protocol with the same in the model; then a clean run must leave every row once."""

    def compare(rules, scene, schedule):
        runners, log = scene
        open_project = partial(opened, tmp_path, spark, PATTERNS[rules.adds])
        for day in DAYS[:2]:
            land(tmp_path, day, orders_of(day))
        # "begun" is inside Delta's transaction, where the rows of tables are computed; those of files are before it.
        monkeypatch.setattr("oncelake.delta.targets.materialize", lambda frame: frame)
        if not rules.lock:
            monkeypatch.setattr("oncelake.storage.lock.is_local", lambda _: False)
            monkeypatch.setattr("oncelake.storage.lock.lease_files", lambda *_: None)
        real = real_of(tmp_path, open_project, runners, log, schedule)
        assert real == model_of(rules._replace(patient=False), runners, log, schedule)
        assert open_project().run("orders", **SPANS[BOTH]).outcome == "done"
        assert [len(whose) for whose in whose_rows(tmp_path).values()] == [1, 1]

    return compare


def between(point):
    """One goes as far as a point, another does all it has to do, the first goes on."""
    return (("A", point), ("B", "ended"), ("A", "ended"))


def crossed(first, second):
    """Each stops once; or one does not start before the other has stopped."""
    legs = (("A", first), ("B", second), ("A", "ended"), ("B", "ended"))
    return legs[1:] if first == "start" else legs


FAILPOINTS = ("planned", "pinned", "claimed", "writing", "begun", "written", "recorded")
CROSSED = {f"{first} {second}": crossed(first, second) for first in ("start", *FAILPOINTS) for second in FAILPOINTS}
LOCKS = {"lock": LOCK, "no lock": NO_LOCK}
GRANTED = pytest.mark.parametrize("rules", LOCKS.values(), ids=LOCKS)
RUNS, RESTATEMENTS = SCENES["a range and a day"], SCENES["a restatement of a range and one of a day"]


# In each of these a sample is chosen by the commit, so that successive commits try different orders; the rest is long.
@pytest.mark.parametrize("point", sampled(FAILPOINTS, 2, "no lock", always=["begun"]))
def test_a_run_between_two_steps_of_another_is_as_in_the_model(context, point):
    context(NO_LOCK, RUNS, between(point))


@pytest.mark.parametrize("point", sampled(FAILPOINTS, 1, "lock"))
def test_with_a_lock_a_run_between_two_steps_of_another_is_as_in_the_model(context, point):
    context(LOCK, RUNS, between(point))


@pytest.mark.parametrize(("rules", "point"), [(LOCK, "requested"), (NO_LOCK, "writing")], ids=["lock", "no lock"])
def test_a_restatement_between_two_steps_of_another_is_as_in_the_model(context, rules, point):
    context(rules, RESTATEMENTS, between(point))


@pytest.mark.parametrize("point", sampled(["writing", "begun"], 1, "adding"))
def test_adding_between_two_steps_of_another_is_as_in_the_model(context, point):
    context(NO_LOCK._replace(adds=True), RUNS, between(point))


@pytest.mark.long
@GRANTED
@pytest.mark.parametrize("point", ["read", "transformed", "created", "settled"])
def test_points_that_the_model_does_not_tell_apart_are_not_different(context, rules, point):
    context(rules, RUNS, between(point))


@pytest.mark.parametrize("crossing", sampled([f"{lock}: {c}" for lock in LOCKS for c in CROSSED], 1, "crossed"))
def test_two_runs_that_cross_are_as_in_the_model(context, crossing):
    lock, _, schedule = crossing.partition(": ")
    context(LOCKS[lock], RUNS, CROSSED[schedule])


@pytest.mark.long
@GRANTED
@pytest.mark.parametrize("point", ["requested", *FAILPOINTS])
def test_restatements_at_every_point_are_as_in_the_model(context, rules, point):
    context(rules, RESTATEMENTS, between(point))


@pytest.mark.long
@GRANTED
@pytest.mark.parametrize("point", FAILPOINTS)
def test_adding_at_every_point_is_as_in_the_model(context, rules, point):
    context(rules._replace(adds=True), RUNS, between(point))


@GRANTED
def test_the_orders_that_are_tried_for_real_have_every_outcome_there_is(rules):
    rules = rules._replace(patient=False)
    tried = {repr(model_of(rules, *RUNS, order)) for order in CROSSED.values()}
    assert tried == {repr(outcome_of(world, rules)) for world in explore(Model(rules), *RUNS, crashes=0)}


def test_without_a_lock_restatements_at_once_all_end_well(tmp_path, spark, monkeypatch):
    monkeypatch.setattr("oncelake.storage.lock.is_local", lambda _: False)
    monkeypatch.setattr("oncelake.storage.lock.lease_files", lambda *_: None)
    assert open_orders(tmp_path, spark, "replace_interval").run("orders", date=DAYS[0]).outcome == "done"
    ready = threading.Barrier(3)

    def restate(_):
        project = reopen_orders(tmp_path, spark, "replace_interval")
        ready.wait()
        return project.restate("orders", date=DAYS[0]).outcome

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(restate, range(3))) == ["done"] * 3
