"""Delta logs written by hand, without Spark: for tests of what is read from a log."""

import json
from pathlib import Path

SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": "at", "type": "timestamp", "nullable": True, "metadata": {}}]}
)


def metadata(table_id="made"):
    return {
        "metaData": {
            "id": table_id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": SCHEMA,
            "partitionColumns": [],
            "configuration": {},
        }
    }


def txn(marker, at=0):
    return {"txn": {"appId": marker.app_id, "version": marker.version, "lastUpdated": at}}


def write_commit(table: Path, version: int, *actions: dict, facts: dict | None = None) -> None:
    """Write one commit file, with the facts of a work if there are any; version 0 also creates the table."""
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    first = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, metadata()] if version == 0 else []
    more = {} if facts is None else {"userMetadata": json.dumps({"oncelake": facts})}
    info = {"commitInfo": {"timestamp": version, "operation": "WRITE", **more}}
    lines = [json.dumps(action) for action in (info, *first, *actions)]
    (log / f"{version:020}.json").write_text("\n".join(lines) + "\n")
