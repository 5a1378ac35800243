"""Many runners as a small model: what each does between two failpoints, and what Delta promises."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from functools import cache, partial
from typing import NamedTuple

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
