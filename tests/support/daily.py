"""Daily pipelines over landed JSON files, for tests that declare their own."""

import json

from deltalake import DeltaTable

import oncelake as once


def land(root, day, *rows):
    """Land the rows of a day of March 2024 as its only file."""
    folder = root / f"landing/2024-03-{day}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "x.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def rows(root, table, *columns):
    """The rows of a table, sorted, as any Delta reader sees them."""
    found = DeltaTable(f"{root}/lake/{table}").to_pyarrow_table().to_pylist()
    return sorted(tuple(row[column] for column in columns) for row in found)


def files(schema):
    """The files of a day."""
    return once.files("landing/{start:%Y-%m-%d}/*.json", schema=schema)


def daily(**declared):
    """Declare a pipeline of days."""
    return once.pipeline(every="day", start="2024-03-14", **declared)
