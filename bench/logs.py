"""Delta logs written by hand, as many works would have left them: commits, markers, a checkpoint every ten versions."""

import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq

from oncelake.identity import marker
from oncelake.intervals import Interval

COLUMNS = {"n": "integer", "day": "date"}
FIELDS = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in COLUMNS.items()]
SCHEMA = {"type": "struct", "fields": FIELDS}
START = datetime(1990, 1, 1, tzinfo=UTC)
EPOCH_MS = 1_700_000_000_000


def interval(number):
    return Interval(START + timedelta(days=number), START + timedelta(days=number + 1))


def write_log(table, pipeline, target, works):
    """A table that a pipeline wrote once for each of its first days."""
    log = table / "_delta_log"
    log.mkdir(parents=True)
    metadata = {
        "id": "00000000-0000-0000-0000-000000000000",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(SCHEMA),
        "partitionColumns": ["day"],
        "configuration": {},
        "createdTime": EPOCH_MS,
    }
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    _commit(
        log,
        0,
        [
            {"commitInfo": {"timestamp": EPOCH_MS, "operation": "CREATE TABLE"}},
            {"metaData": metadata},
            {"protocol": protocol},
        ],
    )
    markers, adds = [], []
    for number in range(works):
        span = interval(number)
        at = EPOCH_MS + (number + 1) * 1000
        txn = {"appId": marker(pipeline, target, span, 1).app_id, "version": 1, "lastUpdated": at}
        add = _add(table, span, at)
        facts = {
            "oncelake": {"pipeline": pipeline, "target": target, "slice": span.text, "generation": 1, "run": "bench"}
        }
        info = {
            "timestamp": at,
            "operation": "WRITE",
            "operationParameters": {"mode": "Overwrite"},
            "operationMetrics": {"numOutputRows": "1", "numDeletedRows": "0"},
            "userMetadata": json.dumps(facts),
        }
        _commit(log, number + 1, [{"commitInfo": info}, {"txn": txn}, {"add": add}])
        markers.append(txn)
        adds.append(add)
    newest = works // 10 * 10
    if newest:
        _checkpoint(log, newest, metadata, protocol, markers[:newest], adds[:newest])


def _add(table, span, at):
    """One row in one file, really there, so that Spark can read the table too."""
    day = span.start.date()
    path = table / f"day={day}" / "part-0.parquet"
    path.parent.mkdir()
    path.write_bytes(_ONE_ROW)
    stats = json.dumps({"numRecords": 1, "minValues": {}, "maxValues": {}, "nullCount": {}})
    return {
        "path": f"day={day}/part-0.parquet",
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


def _checkpoint(log, version, metadata, protocol, markers, adds):
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
    metadata = {**metadata, "configuration": [], "format": {"provider": "parquet", "options": []}}
    rows = [{"metaData": metadata}, {"protocol": protocol}, *({"txn": txn} for txn in markers)]
    rows += [{"add": {**add, "partitionValues": list(add["partitionValues"].items())}} for add in adds]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), log / f"{version:020}.checkpoint.parquet")
    hint = {"version": version, "size": len(rows)}
    (log / "_last_checkpoint").write_text(json.dumps(hint))
