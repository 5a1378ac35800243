"""Files that arrive: what becomes of a schema that the target cannot take. Nothing may be stuck for good."""

import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq

import oncelake as once
from support.arrivals import drop, events, outcomes, table

NARROW = pa.schema({"id": pa.int32(), "f": pa.float32(), "d": pa.decimal128(5, 2), "s": pa.struct({"a": pa.int16()})})
WIDE = pa.schema({"id": pa.int64(), "f": pa.float64(), "d": pa.decimal128(20, 4), "s": pa.struct({"a": pa.int64()})})


def put(folder, name, schema, *values):
    pq.write_table(
        pa.table({each.name: [value] for each, value in zip(schema, values, strict=True)}, schema), folder / name
    )


def put_narrow(folder, name, number):
    put(folder, name, NARROW, number, 1.5, Decimal("1.10"), {"a": 1})


def put_wide(folder, name):
    put(folder, name, WIDE, 2**40, 0.1, Decimal("12345678.1234"), {"a": 2**40})


def rows(p):
    return p.session().read.format("delta").load(p.lake.table("bronze").path)


def test_values_that_are_too_wide_for_the_table_are_rescued(arriving, landing):
    p = arriving(events(kind="parquet"))
    put_narrow(landing, "0.parquet", 0)
    p.run()
    put_wide(landing, "1.parquet")
    (work,) = p.run().works
    assert (work.outcome, work.rows.written) == ("committed", 1)
    put_narrow(landing, "2.parquet", 2)
    assert outcomes(p.run()) == [("batch 2", "committed")]
    found = {row["id"]: row for row in rows(p).collect()}
    assert found.keys() == {0, None, 2}
    rescued = json.loads(found[None]["_rescued"])
    assert rescued["id"]["value"] == 2**40
    assert rescued.keys() == {"id", "f", "d", "s"}


def test_a_table_with_type_widening_takes_wider_values(arriving, landing):
    p = arriving(events(kind="parquet"))
    put_narrow(landing, "0.parquet", 0)
    p.run()
    path = p.lake.table("bronze").path
    p.session().sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    put_wide(landing, "1.parquet")
    put_narrow(landing, "2.parquet", 2)
    assert outcomes(p.run()) == [("batch 1", "committed")]
    put_narrow(landing, "3.parquet", 3)
    assert outcomes(p.run()) == [("batch 2", "committed")]
    assert sorted(row["id"] for row in rows(p).collect()) == [0, 2, 3, 2**40]
    assert rows(p).where("_rescued is not null").count() == 0
    assert dict(rows(p).dtypes) | {"s": ""} == {
        "id": "bigint",
        "f": "double",
        "d": "decimal(20,4)",
        "s": "",
        "_rescued": "string",
    }


def test_a_column_with_a_name_that_delta_refuses_is_rescued(arriving, landing):
    p = arriving()
    drop(landing, "a.json", {"id": 1})
    p.run()
    drop(landing, "b.json", {"id": 2, "bad col": 7, "good": {"x y": 1, "z": 2}})
    drop(landing, "c.json", {"id": 3, "more": 1})
    assert outcomes(p.run()) == [("batch 1", "committed")]
    assert table(p, "bronze", "id", "good.z", "more") == [(1, None, None), (2, None, None), (3, None, 1)]
    (row,) = rows(p).where("_rescued is not null").collect()
    rescued = json.loads(row["_rescued"])
    assert rescued["bad col"] == {"value": 7, "reason": "no such column, and Delta refuses its name"}
    assert rescued["good"]["value"] == {"x y": 1, "z": 2}


def test_a_failed_batch_pins_no_schema_for_good(arriving, landing):
    """The merged table takes no new column, so the batch fails; without the file, or by another declaration, it does not."""
    merged = once.merge("bronze", keys="id")
    p = arriving(events(merged))
    drop(landing, "a.json", {"id": 1})
    p.run()
    bad = drop(landing, "b.json", {"id": 2, "new": 1})
    (work,) = p.run().works
    assert (work.outcome, work.code) == ("failed", "wrong_columns")
    assert 'declare schema="evolve" on the pattern, or evolution="rescue" on once.files' in work.error
    bad.unlink()
    drop(landing, "c.json", {"id": 3})
    assert [outcome for _, outcome in outcomes(p.run())] == ["committed", "committed"]
    assert table(p) == [(1,), (3,)]
    drop(landing, "d.json", {"id": 4, "new": 1})
    assert [outcome for _, outcome in outcomes(p.run())] == ["failed"]
    p = arriving(events(merged, evolution="rescue"))
    assert [outcome for _, outcome in outcomes(p.run())] == ["committed"]
    assert table(p) == [(1,), (3,), (4,)]


def test_no_value_of_a_folder_is_lost(arriving, landing):
    p = arriving(events(schema="id long, region string, n int, s struct<a:int>", evolution="rescue"))
    drop(landing, "region=DE/a.json", {"id": 1, "region": "FR"}, {"id": 2}, {"id": 3, "region": "DE"})
    drop(landing, "region=EU/region=US/b.json", {"id": 4}, {"id": 5, "region": "MX"})
    drop(landing, "Region=AT/c.json", {"id": 6})
    drop(landing, "no col=1/n=x/s=1/d.json", {"id": 7, "n": 1}, {"id": 8})
    assert outcomes(p.run()) == [("batch 0", "committed")]
    found = {row["id"]: row for row in rows(p).collect()}
    assert [found[number]["region"] for number in range(1, 8)] == ["FR", "DE", "DE", "US", "MX", "AT", None]
    rescued = {number: json.loads(row["_rescued"]) for number, row in found.items() if row["_rescued"]}
    values = {number: {name: each["value"] for name, each in row.items()} for number, row in rescued.items()}
    assert values == {
        1: {"region": "DE"},
        4: {"region": "EU"},
        5: {"region": "EU/US"},
        7: {"no col": "1", "n": "x", "s": "1"},
        8: {"no col": "1", "n": "x", "s": "1"},
    }
    assert rescued[8]["n"]["reason"] == "the name of the folder does not fit the column"
    assert rescued[7]["no col"]["reason"] == "no such column"
