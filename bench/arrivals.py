"""Files that arrive: many small ones, none, ten among a million known ones, and large ones; whole processes, started cold.

`BENCH_SCALE=0.02 python -m bench arrivals` tries it with a fiftieth of the files and bytes, and stores no results.
"""

import json
import os
import shutil
import sys
import tempfile
from itertools import count
from pathlib import Path
from random import Random
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from bench.clock import best_of, figure
from bench.days import BIN, HERE
from bench.processes import measure_tree
from oncelake.delta.log import read_log
from oncelake.sources.arrivals.discovery import discover
from oncelake.sources.arrivals.known_files import KnownFiles
from oncelake.sources.arrivals.manifests import Manifests

SCALE = float(os.environ.get("BENCH_SCALE", "1"))
SMALL_FILES, KNOWN_FILES, NEW_FILES = int(100_000 * SCALE), int(1_000_000 * SCALE), 10
LARGE_BYTES, PARQUET_FILES, CSV_FILES = int((1 << 30) * SCALE), 8, 4
# Files in a folder of the million, and in a manifest of them.
FOLDER_FILES, MANIFEST_FILES = 10_000, max(1, KNOWN_FILES // 10)
ROUNDS, DISCOVERIES = 2, 5
SMALL_SCHEMA = "id bigint, customer string, amount double, ordered_at string, note string"
LARGE_SCHEMA = "id bigint, customer bigint, amount double, price double, note string"
# Bytes of a row, as the generator below writes it.
ROW_BYTES = {"parquet": 44, "csv": 74}
# Both sides have the heap that the stream needs for its list of files.
SPARK = {"spark.driver.memory": "4g"}
PIPELINES = """
import oncelake as once

@once.pipeline(
    reads=once.files("{landing}", format="{kind}", schema="{schema}"),
    writes=once.append("bronze.orders"),
)
def orders(rows):
    return rows
"""


def measure():
    # Many small files are measured, not a disk: the page cache would hold them as well.
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as landing,
        tempfile.TemporaryDirectory() as folder,
    ):
        stage = Stage(Path(landing), Path(folder))
        stage.warm_up()
        for part in (_small, _known, _large):
            yield from part(stage)
            stage.clear()


class Stage:
    """Where files arrive, and new projects and tables for them."""

    def __init__(self, landing, folder):
        self.landing, self.folder, self._numbers = landing, folder, count()

    def warm_up(self):
        """Run both jobs on a few files, so that the first one that is measured does not load the jars from the disk."""
        write_orders(self.landing, range(10))
        ours(self.project("json", SMALL_SCHEMA))
        by_hand("stream", "json", SMALL_SCHEMA, self.landing, self.empty())
        self.clear()

    def project(self, kind, schema, landing=None):
        root = self.empty()
        root.mkdir()
        (root / "oncelake.yaml").write_text(f"lake: lake\npipelines: pipelines.py\nspark: {json.dumps(SPARK)}\n")
        text = PIPELINES.format(landing=landing or self.landing, kind=kind, schema=schema)
        (root / "pipelines.py").write_text(text)
        return root

    def empty(self):
        """Return the path of a new table or project."""
        return self.folder / str(next(self._numbers))

    def clear(self):
        for place in (*self.landing.iterdir(), *self.folder.iterdir()):
            shutil.rmtree(place) if place.is_dir() else place.unlink()


def ours(root):
    """Return what `oncelake run` uses."""
    return measure_tree(BIN / "oncelake", "run", "-p", root)


def by_hand(*arguments):
    """Return what the job without oncelake uses."""
    script = (sys.executable, HERE / "arrivals_by_hand.py")
    return measure_tree(*script, *arguments, env={"BENCH_SPARK": json.dumps(SPARK)})


def _small(stage):
    """Many small files: discovery, a first run, and a start with nothing new."""
    landing = stage.landing / "small"
    write_orders(landing, range(SMALL_FILES))
    yield _discovery(landing)
    root, table = stage.project("json", SMALL_SCHEMA, landing), stage.empty()
    stream = ("stream", "json", SMALL_SCHEMA, landing, table)
    first = ours(root), by_hand(*stream)
    rounds = [(ours(root), by_hand(*stream)) for _ in range(ROUNDS)]
    require_rows(root / "lake" / "bronze" / "orders", SMALL_FILES)
    require_rows(table, SMALL_FILES)
    yield from _compare(f"{SMALL_FILES:,} small JSON files, first run: ours / Spark's stream", "≤ 0.1", *first)
    again = map(min, zip(*rounds, strict=True))
    yield from _compare(f"{SMALL_FILES:,} known files, nothing new: ours / Spark's stream", "≤ 0.1", *again)


def _discovery(landing):
    def bare():
        with os.scandir(landing) as entries:
            for entry in entries:
                entry.stat()

    def discovery():
        assert discover(str(landing)).files.num_rows == SMALL_FILES

    best = best_of(DISCOVERIES, discovery=discovery, bare=bare)
    ratio = round(best["discovery"] / best["bare"], 2)
    return figure(f"discovery of {SMALL_FILES:,} files / bare scandir and stat", ratio, "×", "≤ 2.5", **best)


def _known(stage):
    """A few new files among many that are known."""
    landing = stage.landing / "known"
    root = stage.project("json", SMALL_SCHEMA, landing)
    make_known(root, landing)
    table, rounds = root / "lake" / "bronze" / "orders", []
    for number in range(1, ROUNDS + 1):
        write_orders(landing / "new", range(number * NEW_FILES, (number + 1) * NEW_FILES))
        rounds.append(ours(root))
        require_rows(table, (number + 1) * NEW_FILES)
    best = min(rounds)
    what = f"{NEW_FILES} new files among {KNOWN_FILES:,} known"
    yield figure(what, round(best.seconds, 2), "s", "≤ 10")
    yield figure(f"{what}: memory of Python at its peak", round(best.python), "MB", "≤ 500")
    yield figure(f"{what}: memory of the JVM at its peak", round(best.java), "MB", "—")


def make_known(root, landing):
    """Let a real batch create the table, then freeze and record the known files as batches after it.

    The table's marker says that all of them are done. Their files are empty: only size and time are compared.
    """
    write_orders(landing / "new", range(NEW_FILES))
    ours(root)
    for start in range(0, KNOWN_FILES, FOLDER_FILES):
        touch(landing / f"{start:08}", range(start, min(start + FOLDER_FILES, KNOWN_FILES)))
    manifests = Manifests(str(root / "lake" / "_oncelake" / "arrivals" / "orders"))
    files = KnownFiles.load(manifests.folder).subtract(discover(str(landing), str(root)).files).new
    last = -(-files.num_rows // MANIFEST_FILES)
    for number in range(1, last + 1):
        some = files.slice((number - 1) * MANIFEST_FILES, MANIFEST_FILES)
        manifests.freeze(number, some, {})
        manifests.record(number, some.append_column("state", pa.repeat("done", some.num_rows)))
    mark_done(root / "lake" / "bronze" / "orders", last)
    # As the runs of so many batches would have done.
    KnownFiles.load(manifests.folder).compact()


def mark_done(path, number):
    """Commit the marker of a batch to a table, without rows."""
    from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

    (app_id,) = read_log("bronze.orders", str(path)).markers
    none = pa.schema(DeltaTable(str(path)).schema().to_arrow()).empty_table()
    marker = CommitProperties(app_transactions=[Transaction(app_id, number)])
    write_deltalake(str(path), none, mode="append", commit_properties=marker)


def _large(stage):
    """Large files: against a plain read and write of them, into a new table, and then into the table that is there."""
    for kind, files in (("parquet", PARQUET_FILES), ("csv", CSV_FILES)):
        landing, table = stage.landing / kind, stage.empty()
        root = stage.project(kind, LARGE_SCHEMA, landing)
        for number, (where, goal) in enumerate((("a new table", "—"), ("the table", "≤ 1.1")), 1):
            rows = write_large(landing / str(number), kind, files)
            copy = ("copy", kind, LARGE_SCHEMA, landing / str(number), table)
            both = ours(root), by_hand(*copy)
            require_rows(root / "lake" / "bronze" / "orders", number * rows)
            require_rows(table, number * rows)
            what = f"{LARGE_BYTES >> 20:,} MB of {kind} in {files} files into {where}: ours / read and write by Spark"
            yield from _compare(what, goal, *both, memory_goal="—")
        stage.clear()


def _compare(what, goal, mine, other, memory_goal="≤ 0.5"):
    ratio, memory = round(mine.seconds / other.seconds, 3), round(mine.megabytes / other.megabytes, 3)
    yield figure(what, ratio, "×", goal, ours=mine.seconds, by_hand=other.seconds)
    both = {"ours": mine.megabytes, "ours_python": mine.python, "by_hand": other.megabytes}
    yield figure(f"{what}, memory at its peak", memory, "×", memory_goal, **both)


def require_rows(table, rows):
    """Check that a table has so many rows, by the statistics of its files."""
    from deltalake import DeltaTable

    found = pa.table(DeltaTable(str(table)).get_add_actions(flatten=True))["num_records"]
    assert sum(found.to_pylist()) == rows, f"{table} has {sum(found.to_pylist()):,} rows and not {rows:,}"


def write_orders(folder, numbers):
    """Write files of one order each, of about 200 bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        order = {
            "id": number,
            "customer": f"customer {number % 1000}",
            "amount": number / 8,
            "ordered_at": f"2024-03-{number % 28 + 1:02}T{number % 24:02}:30:00Z",
            "note": f"order {number} " + "of a customer who wants it soon " * 3,
        }
        (folder / name_of(number)).write_text(json.dumps(order) + "\n")


def touch(folder, numbers):
    folder.mkdir(parents=True)
    for number in numbers:
        os.close(os.open(f"{folder}/{name_of(number)}", os.O_CREAT | os.O_WRONLY))


def name_of(number):
    """Return a name that compresses no better than those of real producers."""
    return f"order-{number:08}-{UUID(int=Random(number).getrandbits(128))}.json"


def write_large(folder, kind, files):
    """Write files of about as many bytes altogether as asked for; return how many rows they have."""
    folder.mkdir(parents=True)
    rows = LARGE_BYTES // ROW_BYTES[kind] // files
    random = np.random.default_rng(7)
    for number in range(files):
        ids = np.arange(number * rows, (number + 1) * rows)
        notes = pa.compute.binary_join_element_wise(
            "order", pa.array(random.integers(0, 1 << 30, rows)).cast("string"), " "
        )
        columns = {"id": ids, "customer": random.integers(0, 1 << 30, rows), "amount": random.random(rows)}
        table = pa.table({**columns, "price": random.random(rows), "note": notes})
        path = folder / f"part-{number}.{kind}"
        if kind == "parquet":
            pyarrow.parquet.write_table(table, path, row_group_size=1 << 20)
        else:
            pyarrow.csv.write_csv(table, path)
    return rows * files
