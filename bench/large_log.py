"""A table of 100,000 commits and 1,000,000 files: status, plan of a pipeline that reads it, a merge's look at its log.

The log is synthetic: one checkpoint, the commits after it, and no data. `python -m bench.large_log FOLDER` writes the project
without measuring it, with `--all-commits` also the commit files that Delta would have cleaned up.
"""

import json
import sys
import tempfile
from pathlib import Path
from random import Random
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

from bench.clock import figure
from bench.days import BIN
from bench.logs import EPOCH_MS, HOUR, PROTOCOL, START, interval
from bench.processes import best_run
from oncelake.model.markers import marker

COMMITS, FILES_EACH, TAIL, ROUNDS = 100_000, 10, 5, 3
PIPELINE, TARGET = "events", "silver.events"
COLUMNS = {"id": "long", "at": "timestamp", "amount": "double"}
METADATA = {
    "id": "00000000-0000-0000-0000-000000000001",
    "format": {"provider": "parquet", "options": {}},
    "schemaString": json.dumps(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in COLUMNS.items()
            ],
        }
    ),
    "partitionColumns": [],
    "configuration": {},
    "createdTime": EPOCH_MS,
}
PIPELINES = f"""
import oncelake as once

@once.pipeline(
    every="hour", start="{START.date()}", reads=once.files("landing/{{start:%Y-%m-%d-%H}}/*.json"),
    writes=once.replace_interval("{TARGET}", time="at"),
)
def {PIPELINE}(files):
    return files

@once.pipeline(
    every="hour", start="{START.date()}", reads=once.table("{TARGET}", time="at"),
    writes=once.replace_interval("gold.totals", time="at"),
)
def totals(events):
    return events
"""
LOOK = """
import sys
from oncelake.delta.compaction import due
from oncelake.delta.log import find_log
from oncelake.keyed.reduce import newest_in_table

log = find_log("silver.events", sys.argv[1])
assert len(log.files) == int(sys.argv[2]) and newest_in_table(log, "at") and log.files.size_in({}) and not due(log)[1:]
"""


def measure():
    with tempfile.TemporaryDirectory() as folder:
        root = write_project(Path(folder))
        span = ("--from", f"{START:%Y-%m-%dT%H:%M}", "--to", f"{interval(COMMITS, HOUR).start:%Y-%m-%dT%H:%M}")
        plan = (BIN / "oncelake", "plan", "totals", *span, "--json", "-p", root)
        look = (sys.executable, "-c", LOOK, str(root / "lake" / "silver" / "events"), str(COMMITS * FILES_EACH))
        yield from _figures("status", "≤ 1.5", BIN / "oncelake", "status", "-p", root)
        yield from _figures(f"plan of {COMMITS:,} hours that read it", "≤ 10", *plan)
        yield from _figures("a merge's look at its log", "≤ 5", *look)


def write_project(root, all_commits=False):
    (root / "oncelake.yaml").write_text("lake: lake\npipelines: pipelines.py\n")
    (root / "pipelines.py").write_text(PIPELINES)
    log = root / "lake" / "silver" / "events" / "_delta_log"
    log.mkdir(parents=True)
    last = COMMITS - TAIL
    _write_checkpoint(log, last)
    for number in range(0 if all_commits else last, COMMITS):
        _write_commit(log, number)
    return root


def _figures(what, goal, *command):
    seconds, processor, megabytes = best_run(ROUNDS, *command)
    what = f"{COMMITS:,} commits, {COMMITS * FILES_EACH:,} files: {what}"
    return [
        figure(what, round(seconds, 2), "s", goal, processor=processor),
        figure(f"{what}: memory at its peak", round(megabytes), "MB", "≤ 700"),
    ]


def _write_checkpoint(log, commits):
    """Write the markers and files of the first commits, a row group for each of some parts of them."""
    schema = _checkpoint_schema()
    with pq.ParquetWriter(log / f"{commits:020}.checkpoint.parquet", schema, compression="snappy") as writer:
        metadata = {**METADATA, "format": {"provider": "parquet", "options": []}, "configuration": []}
        writer.write_table(pa.Table.from_pylist([{"protocol": PROTOCOL}, {"metaData": metadata}], schema))
        for first in range(0, commits, 10_000):
            numbers = range(first, min(first + 10_000, commits))
            rows = [{"txn": _txn(number)} for number in numbers]
            rows += [{"add": {**add, "partitionValues": []}} for number in numbers for add in _adds(number)]
            writer.write_table(pa.Table.from_pylist(rows, schema))


def _write_commit(log, number):
    span = interval(number, HOUR)
    facts = {"pipeline": PIPELINE, "target": TARGET, "slice": span.text, "generation": 1, "run": "bench"}
    info = {
        "timestamp": EPOCH_MS + number * 1000,
        "operation": "WRITE",
        "operationMetrics": {"numOutputRows": "1000"},
        "userMetadata": json.dumps({"oncelake": facts}),
    }
    actions = [{"commitInfo": info}, {"txn": _txn(number)}, *({"add": add} for add in _adds(number))]
    text = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
    (log / f"{number + 1:020}.json").write_text(text)


def _txn(number):
    app_id = marker(PIPELINE, TARGET, interval(number, HOUR), 1).app_id
    return {"appId": app_id, "version": 1, "lastUpdated": EPOCH_MS + number * 1000}


def _adds(number):
    start = interval(number, HOUR).start
    first, last = (f"{start:%Y-%m-%dT%H}:{rest}Z" for rest in ("00:00.000", "59:59.999"))
    names = Random(number)
    for part in range(FILES_EACH):
        key = (number * FILES_EACH + part) * 100
        stats = {
            "numRecords": 100,
            "minValues": {"id": key, "at": first, "amount": 0.5},
            "maxValues": {"id": key + 99, "at": last, "amount": 99.5},
            "nullCount": {"id": 0, "at": 0, "amount": 3},
        }
        yield {
            "path": f"part-{part:05}-{UUID(int=names.getrandbits(128))}-c000.snappy.parquet",
            "partitionValues": {},
            "size": 100_000 + part,
            "modificationTime": EPOCH_MS + number * 1000,
            "dataChange": True,
            "stats": json.dumps(stats, separators=(",", ":")),
        }


def _checkpoint_schema():
    text, number, text_map = pa.string(), pa.int64(), pa.map_(pa.string(), pa.string())
    add = {"path": text, "partitionValues": text_map, "size": number, "modificationTime": number}
    metadata = {"id": text, "format": pa.struct({"provider": text, "options": text_map}), "schemaString": text}
    metadata |= {"partitionColumns": pa.list_(text), "configuration": text_map, "createdTime": number}
    return pa.schema(
        {
            "txn": pa.struct({"appId": text, "version": number, "lastUpdated": number}),
            "add": pa.struct({**add, "dataChange": pa.bool_(), "stats": text}),
            "metaData": pa.struct(metadata),
            "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
        }
    )


if __name__ == "__main__":
    write_project(Path(sys.argv[1]), "--all-commits" in sys.argv)
