"""Many runners at once, as a small model that is looked at in every order there is, and as the real ring in the same order.

The model knows what a runner does between two points, and what Delta promises. Where the two disagree, one of them is wrong.
"""

from __future__ import annotations

import json
import os
import queue
import threading
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import NamedTuple

import pytest

import oncelake as once
from oncelake.model import failpoints
from oncelake.model.events import RunPlanned
from support.lakes import DAYS, land, make_project, orders_of, orders_project, rows

CELLS = (0, 1)
BOTH, FIRST, SECOND = (0, 2), (0, 1), (1, 2)
TRIES = 2
OVER = ("ended", "crashed")


class Work(NamedTuple):
    """Some neighbouring cells in a generation."""

    cells: tuple[int, int]
    generation: int


class Commit(NamedTuple):
    """A version of the table: whose, under which marker, and which cells it wrote. One that asks writes none."""

    by: str
    work: Work
    wrote: tuple[int, ...]
    marks: bool = True
    restate_requests: bool = False


Log = tuple[Commit, ...]


class Runner(NamedTuple):
    """A process that was told to run or to restate some cells, and how far it has come."""

    name: str
    wants: tuple[int, int]
    restates: bool = False
    at: str = "start"
    restate_requests: tuple[Work, ...] = ()
    slices: tuple[Work, ...] = ()
    parts: tuple[Work, ...] = ()
    tries: int = 0
    since: int = 0
    says: tuple[tuple[Work, str], ...] = ()


class World(NamedTuple):
    """Everything there is: the log, who holds the lock, the runners, and how many of them may still be killed."""

    log: Log
    holder: str
    runners: tuple[Runner, ...]
    crashes: int = 0


class Rules(NamedTuple):
    """What the environment grants and what the ring takes care of. The ones that are never off are there to be broken."""

    lock: bool = True
    patient: bool = True  # waits for the lock for ever, or not at all
    adds: bool = False  # rows are added, not set
    by_cell: bool = False  # Delta sees that commits to other cells do not collide: the table is partitioned
    bound: bool = False  # a commit is refused if another one came since the log was asked, not only since it was begun
    settles: bool = True
    put_if_absent: bool = True
    atomic: bool = True


def cells_of(work: Work) -> range:
    return range(*work.cells)


def covered(log: Log, cell: int, requested: bool = False) -> Work:
    """The marker of the highest generation over a cell: what the log says is done there, or asked for."""
    over = (c.work for c in log if c.marks and c.restate_requests == requested and cell in cells_of(c.work))
    return max(over, key=lambda work: (work.generation, -work.cells[0], -work.cells[1]), default=Work((0, 0), 0))


def done(log: Log, work: Work) -> list[bool]:
    return [covered(log, cell).generation >= work.generation for cell in cells_of(work)]


def content(log: Log, rules: Rules) -> dict[int, list[Commit]]:
    """What a reader finds: of every cell the commits whose rows are there."""
    found: dict[int, list[Commit]] = {cell: [] for cell in CELLS}
    for commit in log:
        for cell in commit.wrote:
            found[cell] = [*(found[cell] if rules.adds else []), commit]
    return found


def grouped(cells: range, keys: dict[int, object]) -> Iterator[tuple[int, int]]:
    """Neighbouring cells that are alike, as few ranges."""
    start = cells.start
    for cell in cells:
        if cell + 1 == cells.stop or keys.get(cell) != keys.get(cell + 1):
            if cell in keys:
                yield (start, cell + 1)
            start = cell + 1


class Model:
    """What each runner does next. A method for every point, named like it; None means that it has to wait."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def after(self, world: World) -> Iterator[World]:
        """Every world that may come next."""
        for me in world.runners:
            if me.at in OVER:
                continue
            if (found := self.step(me, world)) is not None:
                yield found
            if me.at == "orphan":
                yield self._go(world, me._replace(at="crashed"))
            elif world.crashes:
                # Python is dead at once; its JVM may still commit, and until it is gone it keeps the lock.
                left = "orphan" if me.at == "begun" else "crashed"
                yield self._go(world, me._replace(at=left))._replace(crashes=world.crashes - 1)

    def step(self, me: Runner, world: World) -> World | None:
        """What a runner does until the next point."""
        return getattr(self, f"_{me.at}")(me, world)

    def _start(self, me: Runner, world: World) -> World | None:
        if me.restates:
            return self._begin_asking(me, world)
        keys = {}
        for cell in range(*me.wants):
            wanted, there = max(1, covered(world.log, cell, requested=True).generation), covered(world.log, cell)
            if there.generation < wanted:
                keys[cell] = (wanted, there if there.generation else None)
            else:
                me = self._said(me, Work((cell, cell + 1), there.generation), "already_done")
        return self._go(world, me._replace(at="planned", slices=self._slices(range(*me.wants), keys)))

    def _slices(self, cells: range, keys: dict[int, tuple[int, Work | None]]) -> tuple[Work, ...]:
        """Neighbouring cells are one slice, where they are set; what is added keeps to the cells."""
        ranges = [(c, c + 1) for c in cells if c in keys] if self.rules.adds else grouped(cells, keys)
        return tuple(Work(span, keys[span[0]][0]) for span in ranges)

    def _begin_asking(self, me: Runner, world: World) -> World:
        generations = {
            c: covered(world.log, c).generation for c in range(*me.wants) if covered(world.log, c).generation
        }
        before = {c: covered(world.log, c, requested=True).generation for c in generations}
        if not generations:
            return self._go(world, me._replace(at="ended"))
        waiting = [before[c] for c in generations if before[c] > generations[c]]
        wanted = max(waiting) if waiting else max(generations.values()) + 1
        spans = grouped(range(*me.wants), generations)
        low = [
            span for span in spans if generations[span[0]] < wanted and min(before[c] for c in range(*span)) < wanted
        ]
        restate_requests = tuple(Work(span, wanted) for span in low)
        return self._go(
            world, me._replace(at="asking" if restate_requests else "requested", restate_requests=restate_requests)
        )

    def _asking(self, me: Runner, world: World) -> World | None:
        if self._busy(me, world):
            return None if self.rules.patient else self._go(world, me._replace(at="ended", restate_requests=()))
        wanted, *left = me.restate_requests
        log = world.log
        if not any(
            c.restate_requests and c.work.cells == wanted.cells and c.work.generation >= wanted.generation for c in log
        ):
            log = (*log, Commit(me.name, wanted, (), restate_requests=True))
        return self._go(
            world._replace(log=log), me._replace(at="asking" if left else "requested", restate_requests=tuple(left))
        )

    def _requested(self, me: Runner, world: World) -> World:
        """Everything that was ever asked for and is not done, whoever asked."""
        keys = {}
        for cell in CELLS:
            wanted, there = covered(world.log, cell, requested=True).generation, covered(world.log, cell)
            if wanted > there.generation:
                keys[cell] = (wanted, there)
        return self._go(world, me._replace(at="planned", slices=self._slices(range(len(CELLS)), keys)))

    def _planned(self, me: Runner, world: World) -> World:
        if not me.slices:
            return self._go(world, me._replace(at="ended"))
        work, *left = me.slices
        me = me._replace(slices=tuple(left))
        if all(done(world.log, work)):
            return self._go(world, self._said(me, work, "already_done"))
        return self._go(world, me._replace(at="pinned", parts=(work,), tries=TRIES))

    def _pinned(self, me: Runner, world: World) -> World | None:
        if self._busy(me, world) and not all(done(world.log, me.parts[0])):
            return None if self.rules.patient else self._end_part(world, me, "busy")
        holder = me.name if self.rules.lock and not world.holder else world.holder
        return self._go(world._replace(holder=holder), me._replace(at="claimed"))

    def _claimed(self, me: Runner, world: World) -> World:
        work = me.parts[0]
        found = done(world.log, work) if self.rules.settles else [False]
        if all(found):
            return self._end_part(world, me, "already_done")
        if any(found):
            cells = tuple(Work((cell, cell + 1), work.generation) for cell in cells_of(work))
            return self._go(world, me._replace(at="pinned", parts=(*cells, *me.parts[1:]), tries=TRIES), held=False)
        return self._go(world, me._replace(at="writing", since=len(world.log)))

    def _writing(self, me: Runner, world: World) -> World:
        """Delta takes its own look at the log, and leaves out a write whose marker is there."""
        since = me.since if self.rules.bound else len(world.log)
        if self._marked(me.parts[0], world.log[:since]):
            return self._go(world, me._replace(at="written"))
        return self._go(world, me._replace(at="begun", since=since))

    def _begun(self, me: Runner, world: World) -> World:
        """The commit, all of it or nothing; or, half of it, where that promise is broken."""
        work = me.parts[0]
        if self.rules.put_if_absent and self._conflict(work, world.log[me.since :]):
            return self._go(world, me._replace(at="written"))
        cells = tuple(cells_of(work))
        half = Commit(me.name, work, cells[: max(1, len(cells) - 1)], marks=False)
        halfway = half in world.log[me.since - 1 :]
        if not self.rules.atomic and not halfway:
            return self._go(world._replace(log=(*world.log, half)), me._replace(since=len(world.log) + 1))
        wrote = cells[len(half.wrote) :] if halfway else cells
        return self._go(world._replace(log=(*world.log, Commit(me.name, work, wrote))), me._replace(at="written"))

    def _orphan(self, me: Runner, world: World) -> World:
        """A JVM that outlived its Python commits, or does not; nobody is told."""
        landed = self._begun(me._replace(at="begun"), world)
        (now,) = (runner for runner in landed.runners if runner.name == me.name)
        return self._go(landed, now._replace(at="crashed" if now.at == "written" else "orphan"))

    def _written(self, me: Runner, world: World) -> World:
        work = me.parts[0]
        if any(c.by == me.name and c.work == work and c.marks for c in world.log[me.since :]):
            return self._end_part(world, me, "committed")
        if all(done(world.log, work)):
            return self._end_part(world, me, "already_done")
        if me.tries > 1:
            return self._go(world, me._replace(at="pinned", tries=me.tries - 1, since=0), held=False)
        return self._end_part(world, me, "busy")

    def _recorded(self, me: Runner, world: World) -> World:
        """The journal is written; nothing that is true depends on it."""
        return self._planned(me, world)

    def _marked(self, work: Work, log: Log) -> bool:
        same = (c for c in log if c.marks and not c.restate_requests and c.work.cells == work.cells)
        return any(commit.work.generation >= work.generation for commit in same)

    def _conflict(self, work: Work, since: Log) -> bool:
        """Adding collides with the same marker only, replacing with every commit that changed rows, there or anywhere."""
        mine = cells_of(work) if self.rules.by_cell else CELLS
        changed = not self.rules.adds and any(cell in commit.wrote for commit in since for cell in mine)
        return changed or self._marked(work, since)

    def _busy(self, me: Runner, world: World) -> bool:
        return self.rules.lock and world.holder not in ("", me.name)

    def _said(self, me: Runner, work: Work, outcome: str) -> Runner:
        return me._replace(says=(*me.says, (work, outcome)))

    def _end_part(self, world: World, me: Runner, outcome: str) -> World:
        me = self._said(me, me.parts[0], outcome)._replace(parts=me.parts[1:], since=0, tries=TRIES)
        return self._go(world, me._replace(at="pinned" if me.parts else "recorded"), held=False)

    def _go(self, world: World, me: Runner, held: bool = True) -> World:
        """The world with one runner gone on. Whoever is through, or dead, holds no lock."""
        mine = world.holder == me.name
        holder = "" if mine and (not held or me.at in OVER) else world.holder
        if me.at in OVER:
            me = me._replace(restate_requests=(), slices=(), parts=(), tries=0, since=0)
        return world._replace(holder=holder, runners=tuple(me if r.name == me.name else r for r in world.runners))


class Broken(AssertionError):
    """A world that must not be."""


def explore(model: Model, runners: tuple[Runner, ...], log: Log = (), crashes: int = 2) -> set[World]:
    """Every world that can come about. Each is looked at, and from each that is at its end one clean run is made."""
    first = World(log, "", runners, crashes)
    seen, waiting, ends = {first}, deque([first]), set()
    looked_at = cache(partial(look_at, model.rules))
    finished = cache(partial(finish, model))
    while waiting:
        world = waiting.popleft()
        looked_at(world.log)
        if all(runner.at in OVER for runner in world.runners):
            finished(world.log)
            check_reports(world)
            ends.add(world)
            continue
        # A crash is no way out: somebody must be able to go on.
        if all(model.step(runner, world) is None for runner in world.runners if runner.at not in OVER):
            raise Broken(f"nobody can go on: {world}")
        for found in model.after(world):
            if found not in seen:
                seen.add(found)
                waiting.append(found)
    return ends


def look_at(rules: Rules, log: Log) -> None:
    """What holds at every moment: a slice is there whole or not at all, and nothing is there twice."""
    for by, work in {(commit.by, commit.work) for commit in log}:
        wrote = Counter(cell for c in log if (c.by, c.work) == (by, work) for cell in c.wrote)
        if wrote and set(wrote) != set(cells_of(work)):
            raise Broken(f"half a slice: {log}")
    if rules.adds and any(len(found) > 1 for found in content(log, rules).values()):
        raise Broken(f"added twice: {log}")


def finish(model: Model, log: Log) -> None:
    """One clean run over everything ends well, changes nothing when it is repeated, and leaves what was last asked for."""
    for name in ("clean", "again"):
        world = World(log, "", (Runner(name, BOTH),))
        while world.runners[0].at not in OVER:
            found = model.step(world.runners[0], world)
            if found is None:
                raise Broken(f"a clean run has to wait: {world}")
            world = found
        if name == "again" and world.log != log:
            raise Broken(f"done, and done again: {world.log}")
        log = world.log
    look_at(model.rules, log)
    for cell, found in content(log, model.rules).items():
        wanted = max(1, covered(log, cell).generation, covered(log, cell, requested=True).generation)
        if len(found) != 1 or found[0].work.generation != wanted:
            raise Broken(f"cell {cell} holds {found}, not generation {wanted}: {log}")


def check_reports(world: World) -> None:
    """Whoever says that it committed did, once; and of a work whose committing was told to nobody, somebody died."""
    told = Counter((r.name, work) for r in world.runners for work, outcome in r.says if outcome == "committed")
    landed = Counter((c.by, c.work) for c in world.log if c.marks and not c.restate_requests)
    alive = {runner.name for runner in world.runners if runner.at == "ended"}
    if told - landed or any(name in alive for name, _ in landed - told):
        raise Broken(f"said {told}, did {landed}")


DONE: Log = (Commit("before", Work(BOTH, 1), CELLS),)
RANGE, DAY, OTHER = Runner("A", BOTH), Runner("B", FIRST), Runner("C", SECOND)
REDO, REDO_DAY = RANGE._replace(restates=True), DAY._replace(restates=True)
# The runners, and what is there when they start.
SCENES = {
    "a range and a day": ((RANGE, DAY), ()),
    "a range and both its days": ((RANGE, DAY, OTHER), ()),
    "the same range three times": (tuple(Runner(name, BOTH) for name in "ABC"), ()),
    "a range, a day and its restatement": ((RANGE, DAY, Runner("C", FIRST, restates=True)), ()),
    "a restatement of a range and one of a day": ((REDO, REDO_DAY), DONE),
    "two restatements and a run": ((REDO, REDO_DAY, Runner("C", BOTH)), DONE),
}
LARGE = ("two restatements and a run",)
LOCK, NO_LOCK = Rules(), Rules(lock=False)
GROUNDS = {
    "lock": LOCK,
    "lock, no patience": LOCK._replace(patient=False),
    "no lock": NO_LOCK._replace(bound=True),
    "no lock, partitioned": NO_LOCK._replace(bound=True, by_cell=True),
}


@pytest.mark.parametrize("rules", GROUNDS.values(), ids=GROUNDS)
@pytest.mark.parametrize(
    "scene", [pytest.param(name, marks=[pytest.mark.long] if name in LARGE else [], id=name) for name in SCENES]
)
def test_in_every_order_of_steps_and_kills_each_slice_is_written_once(scene, rules):
    assert explore(Model(rules), *SCENES[scene])


@pytest.mark.parametrize("rules", GROUNDS.values(), ids=GROUNDS)
@pytest.mark.parametrize("scene", ["a range and a day", "a range and both its days"])
def test_in_every_order_of_steps_and_kills_each_slice_is_added_once(scene, rules):
    assert explore(Model(rules._replace(adds=True)), *SCENES[scene])


@pytest.mark.parametrize("scene", ["a range and a day", "a range and both its days", "the same range three times"])
def test_without_a_lock_only_a_restatement_needs_commits_to_be_bound(scene):
    """A marker keeps the writes of its own slice apart, and where slices overlap an equal generation is equal rows."""
    assert explore(Model(NO_LOCK._replace(by_cell=True)), *SCENES[scene])


# What would go wrong if one of the things that everything rests on were missing: the rule, the runners, what is seen.
TEETH = {
    "nobody asks the log under the lock": (LOCK._replace(settles=False), "a range, a day and its restatement", "holds"),
    "two win the same version": (NO_LOCK._replace(put_if_absent=False, adds=True), "a range and a day", "added twice"),
    "two win, and one is older": (
        NO_LOCK._replace(put_if_absent=False, bound=True),
        "a range, a day and its restatement",
        "holds",
    ),
    "a commit is not bound to what was settled": (NO_LOCK, "a range, a day and its restatement", "holds"),
    "a range is written in two commits": (LOCK._replace(atomic=False), "a range and a day", "half a slice"),
    "rows first, marker later": (LOCK._replace(atomic=False, adds=True), "a range and a day", "added twice"),
}


@pytest.mark.parametrize(("rules", "scene", "seen"), TEETH.values(), ids=TEETH)
def test_the_model_sees_what_is_missing(rules, scene, seen):
    with pytest.raises(Broken, match=seen):
        explore(Model(rules), *SCENES[scene])


class Forgetful(Model):
    """Nobody lets go of the lock."""

    def _go(self, world, me, held=True):
        return super()._go(world, me)._replace(holder=world.holder)


def test_the_model_sees_a_lock_that_is_never_free():
    with pytest.raises(Broken, match="nobody can go on"):
        explore(Forgetful(LOCK), *SCENES["a range and a day"])


# The real ring in the same order

REAL = """
import threading
from pathlib import Path

import oncelake as once
from pyspark.sql import functions as F

ROOT = Path(__file__).parent


@once.pipeline(
    every="day", start="2024-03-14",
    reads=once.files("landing/{{start:%Y-%m-%d}}/*.json", schema="id long, amount double, at string"),
    writes={writes},
)
def orders(files):
    me = threading.current_thread().name
    hold, go = str(ROOT / f"hold {{me}}"), str(ROOT / f"go {{me}}")

    @F.udf("long")
    def held(number):
        # Opening a pipe waits for whoever opens its other end.
        if number == 0:
            open(hold, "w").close()
            open(go).close()
        return number

    frame = files.select("id", F.to_timestamp("at").alias("ordered_at"), F.lit(me).alias("by"))
    return frame.withColumn("id", held("id")) if Path(hold).exists() else frame
"""
WRITES = {False: 'once.replace_interval("silver.orders", time="ordered_at")', True: 'once.append("silver.orders")'}
SPANS = {BOTH: {"start": DAYS[0], "end": DAYS[2]}, FIRST: {"date": DAYS[0]}, SECOND: {"date": DAYS[1]}}
# Where the real ring can be stopped, and which point of the model that is.
STOPS = {
    **{point: point for point in ("planned", "requested", "pinned", "claimed", "writing", "written", "recorded")},
    **dict.fromkeys(("read", "transformed", "created"), "writing"),
    "settled": "written",
}
LONGEST = 300


class Lockstep:
    """Real runners in threads of their own, of which one at a time goes on until it is told to stop."""

    def __init__(self, root, spark, runners):
        self.root, self.spark = root, spark
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
        project = once.open(self.root, spark=self.spark)
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


def real_of(root, spark, runners, log, schedule):
    """What the real ring makes of the same order."""
    before = tuple(Runner(commit.by, commit.work.cells) for commit in log)
    lockstep = Lockstep(root, spark, (*before, *runners))
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
    """Compare an order in the real ring with the same in the model; then a clean run must leave every row once."""

    def compare(rules, scene, schedule):
        runners, log = scene
        make_project(tmp_path, REAL.format(writes=WRITES[rules.adds]), "lake: lake\nlock_timeout: 0\n")
        for day in DAYS[:2]:
            land(tmp_path, day, orders_of(day))
        if not rules.lock:
            monkeypatch.setattr("oncelake.storage.lock.is_local", lambda _: False)
            monkeypatch.setattr("oncelake.storage.lock.lease_files", lambda *_: None)
        real = real_of(tmp_path, spark, runners, log, schedule)
        assert real == model_of(rules._replace(patient=False), runners, log, schedule)
        assert once.open(tmp_path, spark=spark).run("orders", **SPANS[BOTH]).outcome == "done"
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
GRANTED = pytest.mark.parametrize("rules", [LOCK, NO_LOCK], ids=["lock", "no lock"])
RUNS, RESTATEMENTS = SCENES["a range and a day"], SCENES["a restatement of a range and one of a day"]


@pytest.mark.parametrize("point", FAILPOINTS)
def test_a_run_between_two_steps_of_another_is_as_in_the_model(context, point):
    context(NO_LOCK, RUNS, between(point))


@pytest.mark.parametrize(
    "point",
    [pytest.param(p, marks=[] if p in ("claimed", "begun", "written") else [pytest.mark.long]) for p in FAILPOINTS],
)
def test_with_a_lock_a_run_between_two_steps_of_another_is_as_in_the_model(context, point):
    context(LOCK, RUNS, between(point))


@pytest.mark.parametrize(("rules", "point"), [(LOCK, "requested"), (NO_LOCK, "writing")], ids=["lock", "no lock"])
def test_a_restatement_between_two_steps_of_another_is_as_in_the_model(context, rules, point):
    context(rules, RESTATEMENTS, between(point))


@pytest.mark.parametrize("point", ["writing", "begun"])
def test_adding_between_two_steps_of_another_is_as_in_the_model(context, point):
    context(NO_LOCK._replace(adds=True), RUNS, between(point))


@pytest.mark.long
@GRANTED
@pytest.mark.parametrize("point", ["read", "transformed", "created", "settled"])
def test_points_that_the_model_does_not_tell_apart_are_not_different(context, rules, point):
    context(rules, RUNS, between(point))


@pytest.mark.long
@GRANTED
@pytest.mark.parametrize("schedule", CROSSED.values(), ids=CROSSED)
def test_two_runs_that_cross_are_as_in_the_model(context, rules, schedule):
    context(rules, RUNS, schedule)


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
    root = orders_project(tmp_path, "replace_interval")
    assert once.open(root, spark=spark).run("orders", date=DAYS[0]).outcome == "done"
    ready = threading.Barrier(3)

    def restate(_):
        project = once.open(root, spark=spark)
        ready.wait()
        return project.restate("orders", date=DAYS[0]).outcome

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(restate, range(3))) == ["done"] * 3
