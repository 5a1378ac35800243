"""Many runners at once, as real processes: ranges that overlap, schedulers, kills, restatements; clocks that jump, full disks."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import oncelake as once
from support.lakes import make_project, orders_project, rows
from support.processes import ONCELAKE

# How much more of the same the long tier does.
RUNNERS, ROUNDS, SECONDS, YEAR, KILLS = 8, 30, 60, 365, 20
PIPELINES = """
import oncelake as once

DAILY = {"every": "day", "start": "2024-01-01", "reads": once.table("bronze.orders", time="day")}


@once.pipeline(**DAILY, writes=once.append("silver.added"))
def added(bronze):
    return bronze


@once.pipeline(**DAILY, writes=once.replace_interval("silver.orders", time="day"))
def orders(bronze):
    return bronze
"""
# A process that keeps its session and does one thing after the other, so that many of them are really at it at once.
WORKER = """
import json, sys
from dataclasses import replace
import oncelake as once

once.open(sys.argv[1]).session()
print("{}", flush=True)
for line in sys.stdin:
    act, names, lock_timeout, asked = json.loads(line)
    project = once.open(sys.argv[1])
    project.settings = replace(project.settings, lock_timeout=lock_timeout)
    try:
        report = getattr(project, act)(*names, **asked)
        answer = {"exit": report.exit_code, **report.document()}
    except once.OncelakeError as error:
        answer = {"exit": error.exit_code, "works": [], "error": str(error)}
    print(json.dumps(answer), flush=True)
"""


def day(number):
    return (date(2024, 1, 1) + timedelta(days=number)).isoformat()


def span(first, last):
    return {"start": day(first), "end": day(last)}


def arguments(first, last):
    return ["--from", day(first), "--to", day(last)]


def bronze(root, count, value="old"):
    """Two rows for each of so many days."""
    numbers = range(2 * count)
    days = pa.array([date.fromisoformat(day(number // 2)) for number in numbers])
    table = pa.table({"id": pa.array(numbers), "day": days, "value": pa.array([value] * len(numbers))})
    write_deltalake(str(root / "lake/bronze/orders"), table, mode="overwrite")


def daily_project(root, count):
    make_project(root, PIPELINES)
    bronze(root, count)
    return root


def start(root, *words):
    command = [ONCELAKE, *words, "--json", "--project", str(root)]
    # A session of its own: its JVM is in the same group and can be killed with it.
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, **pipes, text=True, start_new_session=True)


def ended(process):
    """What a process reports at its end: done or lost, and never anything else."""
    answer, told = process.communicate(timeout=900)
    assert process.returncode in (0, 4), told
    return json.loads(answer)


def rowwise(root, *commands):
    return [ended(process) for process in [start(root, *words) for words in commands]]


def beside(root, spark, processes, *names, **asked):
    """What processes report, and last what this one does, which starts when they have planned and are about to work."""
    for process in processes:
        assert any(" to write" in line for line in process.stderr)
    report = once.open(root, spark=spark).run(*names, **asked)
    assert report.exit_code in (0, 4)
    return [*(ended(process) for process in processes), report.document()]


def committed(documents, generation=1):
    """How often each day of each target was said to be committed."""
    works = [work for document in documents for work in document["works"]]
    assert {work["outcome"] for work in works} <= {"committed", "already_done", "busy"}
    done = [work for work in works if (work["outcome"], work["generation"]) == ("committed", generation)]
    return Counter((work["target"], cell) for work in done for cell in cells(work["start"], work["end"]))


def cells(start, end):
    first, last = (date.fromisoformat(text[:10]) for text in (start, end))
    return [(first + timedelta(days=number)).isoformat() for number in range((last - first).days)]


def marked(root, generation=1):
    """How many commits of each target carry a marker over each day: by the log alone."""
    found = Counter()
    for target in ("silver.added", "silver.orders"):
        for file in (root / "lake" / Path(*target.split(".")) / "_delta_log").glob("*.json"):
            txns = [json.loads(line)["txn"] for line in file.read_text().splitlines() if line.startswith('{"txn"')]
            spans = [txn["appId"].rpartition("/")[2].split("..") for txn in txns if txn["version"] == generation]
            found.update((target, cell) for ends in spans for cell in cells(*ends))
    return found


def once_each(count, targets=("silver.added", "silver.orders")):
    return {(target, day(number)): 1 for target in targets for number in range(count)}


# Ranges that overlap


def test_processes_with_overlapping_ranges_write_each_day_once(tmp_path, spark):
    root = daily_project(tmp_path, 5)
    processes = [start(root, "run", *arguments(*ends)) for ends in ((0, 3), (2, 5))]
    reports = beside(root, spark, processes, **span(0, 5))
    assert [report["outcome"] for report in reports] == ["done"] * 3
    assert committed(reports) == marked(root) == once_each(5)
    assert rows(root, "silver.added") == rows(root, "silver.orders") == rows(root, "bronze.orders")


@pytest.fixture
def crowd():
    """Start processes that wait for something to do, and end them after the test."""
    started = []

    def start_workers(root, count):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        command = [sys.executable, "-c", WORKER, str(root)]
        started.extend(subprocess.Popen(command, **pipes, text=True) for _ in range(count))
        assert [answered(worker) for worker in started] == [{}] * count
        return started

    yield start_workers
    for worker in started:
        worker.kill()
        worker.communicate()


def answered(worker):
    return json.loads(worker.stdout.readline())


def told(workers, restate_requests):
    """Tell every worker what to do, all of them before anybody is listened to."""
    for worker, ask in zip(workers, restate_requests, strict=True):
        worker.stdin.write(json.dumps(ask) + "\n")
        worker.stdin.flush()
    answers = [answered(worker) for worker in workers]
    assert {answer["exit"] for answer in answers} <= {0, 4}, answers
    return answers


@pytest.mark.long
def test_eight_processes_with_overlapping_ranges_again_and_again(tmp_path, crowd):
    count = 10
    root = daily_project(tmp_path, ROUNDS * count)
    chance, workers, reports = random.Random(8), crowd(root, RUNNERS), []
    for number in range(ROUNDS):
        restate_requests = []
        for _ in workers:
            first, last = sorted(chance.sample(range(number * count, (number + 1) * count + 1), 2))
            restate_requests.append(
                ("run", chance.choice([["added"], ["orders"], []]), chance.choice([0, 1, 600]), span(first, last))
            )
        reports += told(workers, restate_requests)
    (rest,) = rowwise(root, ["run", *arguments(0, ROUNDS * count)])
    assert rest["outcome"] == "done"
    assert committed([*reports, rest]) == marked(root) == once_each(ROUNDS * count)
    assert rows(root, "silver.added") == rows(root, "silver.orders") == rows(root, "bronze.orders")


@pytest.mark.long
def test_two_schedulers_that_fire_each_second(tmp_path):
    root = daily_project(tmp_path, SECONDS // 3 + 1)
    reports = []

    def fire():
        """One more day is due every third second. A tick is left out while four runs are under way, as schedulers do."""
        clock, running = threading.Event(), []
        for tick in range(SECONDS):
            running = [process for process in running if process.poll() is None or reports.append(ended(process))]
            if len(running) < 4:
                running.append(start(root, "run", *arguments(0, tick // 3 + 1)))
            clock.wait(1)
        reports.extend(ended(process) for process in running)

    schedulers = [threading.Thread(target=fire) for _ in range(2)]
    for scheduler in schedulers:
        scheduler.start()
    for scheduler in schedulers:
        scheduler.join()
    reports += rowwise(root, ["run", *arguments(0, SECONDS // 3 + 1)])
    assert reports[-1]["outcome"] == "done"
    assert committed(reports) == marked(root) == once_each(SECONDS // 3 + 1)
    assert rows(root, "silver.added") == rows(root, "silver.orders") == rows(root, "bronze.orders")


# Kills


def run_and_kill(root, count, after, chance):
    """Run a backfill and kill it when so many works are committed, and a moment later; its JVM with it, or not."""
    process = start(root, "run", *arguments(0, count))
    seen = 0
    for line in process.stderr:
        seen += line.startswith("committed")
        if seen >= after and ("to write" in line or seen):
            break
    with suppress(subprocess.TimeoutExpired):
        process.wait(chance.uniform(0, 1))
    kill = chance.choice([os.kill, os.killpg])
    with suppress(ProcessLookupError):
        kill(process.pid, signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL


def killed_often_is_as_never_killed(root, spark, count, kills, most):
    chance = random.Random(count)
    daily_project(root / "killed", count)
    landed = [run_and_kill(root / "killed", count, chance.randrange(most), chance) for _ in range(kills)]
    assert landed.count(True) == kills
    assert once.open(root / "killed", spark=spark).run(**span(0, count)).outcome == "done"
    assert marked(root / "killed") == once_each(count)
    daily_project(root / "clean", count)
    assert once.open(root / "clean", spark=spark).run("orders", **span(0, count)).outcome == "done"
    for target in ("silver.added", "silver.orders"):
        assert rows(root / "killed", target) == rows(root / "clean")


def test_a_backfill_killed_twice_is_as_one_that_was_not(tmp_path, spark):
    killed_often_is_as_never_killed(tmp_path, spark, count=8, kills=2, most=3)


@pytest.mark.long
def test_a_year_killed_at_many_moments_is_as_one_that_was_not(tmp_path, spark):
    killed_often_is_as_never_killed(tmp_path, spark, YEAR, KILLS, most=YEAR // KILLS)


# Restatements


def values(root):
    """The values of each day in the target, as often as they are there."""
    found = Counter((dict(row)["day"], dict(row)["value"]) for row in rows(root).elements())
    return {number: {v: n for (d, v), n in found.items() if d == day(number)} for number in range(len(found))}


def test_a_restatement_beside_a_run(tmp_path, spark):
    root = daily_project(tmp_path, 8)
    assert once.open(root, spark=spark).run("orders", **span(0, 4)).outcome == "done"
    bronze(root, 8, "new")
    restating = start(root, "restate", "orders", *arguments(0, 2), "--yes")
    reports = beside(root, spark, [restating], "orders", **span(0, 8))
    assert [report["outcome"] for report in reports] == ["done", "done"]
    # Whoever came first did it: what is asked for in the log is everybody's.
    assert committed(reports, generation=2) == once_each(2, ["silver.orders"])
    assert committed(reports) == {("silver.orders", day(number)): 1 for number in range(4, 8)}
    assert values(root) == {number: {"old" if number in (2, 3) else "new": 2} for number in range(8)}


@pytest.mark.long
def test_restatements_beside_runs_again_and_again(tmp_path, crowd):
    root = daily_project(tmp_path, 10)
    chance, workers = random.Random(4), crowd(root, 4)
    told(workers, [("run", ["orders"], 600, span(0, 5))] * 4)
    for number in range(ROUNDS):
        bronze(root, 10, f"round {number}")
        first, last = sorted(chance.sample(range(6), 2))
        run = ("run", ["orders"], chance.choice([0, 600]), span(0, 10))
        told(workers, [run, ("restate", ["orders"], 600, span(first, last)), run, run])
        found = values(root)
        # What a reader sees is whole: each of the two rows of a day, from the same round.
        assert all(list(found[cell].values()) == [2] for cell in range(10)), found
        assert all(list(found[cell]) == [f"round {number}"] for cell in range(first, last)), found


# Clocks that jump


@pytest.mark.parametrize("writes", ["append", pytest.param("replace_interval", marks=pytest.mark.long)])
def test_clocks_that_jump_between_attempts_change_no_result(tmp_path, spark, stopped_at, writes):
    now = datetime(2024, 3, 17, 1, tzinfo=UTC)
    jumps = {"pinned": -3, "claimed": 3, "writing": -1, "written": 2, "settled": -2, "recorded": 1}
    root = orders_project(tmp_path / "jumped", writes)
    for point, days in jumps.items():
        then = now + timedelta(days=days)
        for file in root.glob("landing/*/*"):
            os.utime(file, (then.timestamp(), then.timestamp()))
        # By some of the clocks there is nothing to do.
        with stopped_at(point, reached=False):
            once.open(root, spark=spark).run("orders", now=then)
    # A day that has not begun by the right clock had no files by the wrong one: it failed, and is not there.
    assert once.open(root, spark=spark).run("orders", now=now).outcome == "done"
    clean = orders_project(tmp_path / "clean", writes)
    assert once.open(clean, spark=spark).run("orders", now=now).outcome == "done"
    assert rows(root) == rows(clean)
    assert once.open(root, spark=spark).status(now=now)[0].done == 3
