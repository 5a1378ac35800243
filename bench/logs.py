"""Synthetic Delta logs of many works: commits, markers, a checkpoint every ten versions."""

import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq

from oncelake.model.intervals import Interval
from oncelake.model.markers import marker

COLUMNS = {"n": "integer", "day": "date"}
FIELDS = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in COLUMNS.items()]
SCHEMA = {"type": "struct", "fields": FIELDS}
START = datetime(1990, 1, 1, tzinfo=UTC)
EPOCH_MS = 1_700_000_000_000
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
METADATA = {
    "id": "00000000-0000-0000-0000-000000000000",
    "format": {"provider": "parquet", "options": {}},
    "schemaString": json.dumps(SCHEMA),
    "partitionColumns": ["day"],
    "configuration": {},
    "createdTime": EPOCH_MS,
}
PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}


def interval(number, length=DAY):
    return Interval(START + number * length, START + (number + 1) * length)


def write_log(table, pipeline, target, works):
    """Write the table of a pipeline with one commit for each of its first days."""
    log = _log(table)
    created = {"commitInfo": {"timestamp": EPOCH_MS, "operation": "CREATE TABLE"}}
    _commit(log, 0, [created, {"metaData": METADATA}, {"protocol": PROTOCOL}])
    markers, adds = [], []
    for number in range(works):
        txn, add = _work(log, number, interval(number), pipeline, target)
        markers.append(txn)
        adds.append(add)
    newest = works // 10 * 10
    if newest:
        _checkpoint(log, newest, markers[:newest], adds[:newest])


def write_old_log(table, pipeline, target, works, length=DAY, recent=5):
    """Write such a table after log cleanup: only the newest commits are left, the rest is in one checkpoint."""
    log, old = _log(table), works - recent
    spans = [interval(number, length) for number in range(old)]
    markers = [_txn(number, span, pipeline, target) for number, span in enumerate(spans)]
    # The data files do not exist, because nothing reads the rows.
    adds = [_file(span, txn["lastUpdated"]) for span, txn in zip(spans, markers, strict=True)]
    _checkpoint(log, old, markers, adds)
    for number in range(old, works):
        _work(log, number, interval(number, length), pipeline, target)


def _log(table):
    log = table / "_delta_log"
    log.mkdir(parents=True)
    return log


def _work(log, number, span, pipeline, target):
    """Write the commit of one work: its marker and its file."""
    txn = _txn(number, span, pipeline, target)
    add = _add(log.parent, span, txn["lastUpdated"])
    facts = {"pipeline": pipeline, "target": target, "slice": span.text, "generation": 1, "run": "bench"}
    info = {
        "timestamp": txn["lastUpdated"],
        "operation": "WRITE",
        "operationParameters": {"mode": "Overwrite"},
        "operationMetrics": {"numOutputRows": "1", "numDeletedRows": "0"},
        "userMetadata": json.dumps({"oncelake": facts}),
    }
    _commit(log, number + 1, [{"commitInfo": info}, {"txn": txn}, {"add": add}])
    return txn, add


def _txn(number, span, pipeline, target):
    at = EPOCH_MS + (number + 1) * 1000
    return {"appId": marker(pipeline, target, span, 1).app_id, "version": 1, "lastUpdated": at}


def _add(table, span, at):
    """Write one row in a real file, so that Spark can read the table too."""
    add = _file(span, at)
    (table / add["path"]).parent.mkdir(exist_ok=True)
    (table / add["path"]).write_bytes(_ONE_ROW)
    return add


def _file(span, at):
    day = span.start.date()
    stats = json.dumps({"numRecords": 1, "minValues": {}, "maxValues": {}, "nullCount": {}})
    return {
        "path": f"day={day}/part-{span.start.hour}.parquet",
        "partitionValues": {"day": str(day)},
        "size": len(_ONE_ROW),
        "modificationTime": at,
        "dataChange": True,
        "stats": stats,
    }


def _one_row():
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"n": pa.array([1], pa.int32())}), sink)
    return sink.getvalue().to_pybytes()


_ONE_ROW = _one_row()


def _commit(log, version, actions):
    (log / f"{version:020}.json").write_text("".join(json.dumps(a, separators=(",", ":")) + "\n" for a in actions))


def _checkpoint(log, version, markers, adds):
    text_map = pa.map_(pa.string(), pa.string())
    schema = pa.schema(
        {
            "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
            "add": pa.struct(
                {
                    "path": pa.string(),
                    "partitionValues": text_map,
                    "size": pa.int64(),
                    "modificationTime": pa.int64(),
                    "dataChange": pa.bool_(),
                    "stats": pa.string(),
                }
            ),
            "remove": pa.struct({"path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_()}),
            "metaData": pa.struct(
                {
                    "id": pa.string(),
                    "format": pa.struct({"provider": pa.string(), "options": text_map}),
                    "schemaString": pa.string(),
                    "partitionColumns": pa.list_(pa.string()),
                    "configuration": text_map,
                    "createdTime": pa.int64(),
                }
            ),
            "protocol": pa.struct({"minReaderVersion": pa.int32(), "minWriterVersion": pa.int32()}),
        }
    )
    metadata = {**METADATA, "configuration": [], "format": {"provider": "parquet", "options": []}}
    rows = [{"metaData": metadata}, {"protocol": PROTOCOL}, *({"txn": txn} for txn in markers)]
    rows += [{"add": {**add, "partitionValues": list(add["partitionValues"].items())}} for add in adds]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), log / f"{version:020}.checkpoint.parquet")
    hint = {"version": version, "size": len(rows)}
    (log / "_last_checkpoint").write_text(json.dumps(hint))
