"""`oncelake plan` of 100,000 intervals and `oncelake status` of 100,000 markers: whole processes, without a JVM."""

import tempfile
from pathlib import Path

from bench.clock import figure
from bench.days import BIN
from bench.logs import HOUR, START, interval, write_log, write_old_log
from bench.processes import best_run

INTERVALS, TABLES, ROUNDS = 100_000, 50, 5
PIPELINES = """
import oncelake as once

def declare(name, reads, every="hour", **options):
    @once.pipeline(
        name=name, every=every, start="{start}", reads=reads, **options,
        writes=once.replace_interval("silver." + name, time="at"),
    )
    def rows(rows):
        return rows

small = once.table("raw.orders", time="day")
absent = once.files("landing/{{start:%Y-%m-%d-%H}}/*.json")
"""
PLANNED = """
declare("from_files", absent)
declare("from_table", small)
declare("one_by_one", small, combine_intervals=False)
declare("done", small)
"""
MANY = """
for number in range({tables}):
    declare("p" + str(number), small, every="day")
"""


def measure():
    with tempfile.TemporaryDirectory() as folder:
        root = _project(Path(folder), PLANNED)
        write_old_log(root / "lake" / "silver" / "done", "done", "silver.done", INTERVALS, HOUR)
        yield from _plan(root, "from_files", "nothing done, from files that do not exist yet")
        yield from _plan(root, "from_table", "nothing done, from a small table")
        yield from _plan(root, "one_by_one", "nothing done, from a small table, a commit for each")
        yield from _plan(root, "done", "all done")
    with tempfile.TemporaryDirectory() as folder:
        yield from _status(_project(Path(folder), MANY.format(tables=TABLES)))


def _project(root, pipelines):
    (root / "oncelake.yaml").write_text("lake: lake\npipelines: pipelines.py\n")
    (root / "pipelines.py").write_text(PIPELINES.format(start=START.date()) + pipelines)
    write_log(root / "lake" / "raw" / "orders", "raw", "raw.orders", 10)
    return root


def _plan(root, name, what):
    end = interval(INTERVALS, HOUR).start
    span = ("--from", f"{START:%Y-%m-%dT%H:%M}", "--to", f"{end:%Y-%m-%dT%H:%M}")
    seconds, processor, megabytes = best_run(ROUNDS, BIN / "oncelake", "plan", name, *span, "--json", "-p", root)
    what = f"plan of {INTERVALS:,} intervals, {what}"
    return [
        figure(what, round(seconds, 3), "s", "≤ 1", processor=processor),
        figure(f"{what}: memory at its peak", round(megabytes), "MB", "≤ 300"),
    ]


def _status(root):
    each = INTERVALS // TABLES
    for number in range(TABLES):
        write_old_log(root / "lake" / "silver" / f"p{number}", f"p{number}", f"silver.p{number}", each)
    seconds, processor, megabytes = best_run(ROUNDS, BIN / "oncelake", "status", "-p", root)
    what = f"status of {TABLES} pipelines with {INTERVALS:,} markers"
    return [figure(what, round(seconds, 3), "s", "≤ 1", processor=processor, megabytes=megabytes)]
