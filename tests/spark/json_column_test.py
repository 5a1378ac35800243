"""JSON messages by a schema: what would become null or another value cannot be decoded."""

import json

import pytest
from pyspark.sql import functions as F

from oncelake.spark.json_column import decode_json

SCHEMA = """
    id bigint, s string, d decimal(10,2), f double, at timestamp, day date,
    many array<decimal(5,2)>, named map<string,double>, deep struct<d:decimal(3,1),list:array<struct<at:timestamp>>>
"""
KEPT = [
    ('{"id":7,"s":"a"}', {"id": 7, "s": "a"}),
    ('{"d":12345678.10}', {"d": 12345678.10}),
    ('{"d":"1.1"}', {"d": 1.10}),
    ('{"d":1e2}', {"d": 100.00}),
    ('{"d":null,"unknown":[1.234]}', {}),
    ('{"f":0.1234567890123456789}', {"f": 0.12345678901234568}),
    ('{"f":"Infinity"}', {"f": "Infinity"}),
    ('{"at":"2024-03-15 10:00"}', {"at": "2024-03-15T10:00:00.000Z"}),
    ('{"at":"2024-03-15T10:00:00.123456000Z"}', {"at": "2024-03-15T10:00:00.123Z"}),
    ('{"at":1704067200}', {"at": "2024-01-01T00:00:00.000Z"}),
    ('{"day":"2024-03-15"}', {"day": "2024-03-15"}),
    ('{"s":12345678901234567890123}', {"s": "12345678901234567890123"}),
    ('{"s":1.10}', {"s": "1.1"}),
    ('{"many":[1.25,null]}', {"many": [1.25, None]}),
    ('{"named":{"a":1.5}}', {"named": {"a": 1.5}}),
    ('{"deep":{"d":1.5,"list":[null,{"at":"2024-03-15"}]}}',) * 2,
]
REFUSED = {
    "d": ['{"d":1.005}', '{"d":0.001}', '{"d":"12345678.123"}'],
    "f": ['{"f":1e400}', '{"f":-1e400}'],
    "at": ['{"at":"12:00"}', '{"at":"2024"}', '{"at":"2024-03-15T10:00:00.123456789Z"}'],
    "day": ['{"day":"2024-03-15T23:00:00-05:00"}', '{"day":"2024"}'],
    "s": ['{"s":0.12345678901234567890}'],
    "many": ['{"many":[1.25,1.255]}'],
    "named": ['{"named":{"a":1,"b":1e400}}'],
    "deep": ['{"deep":{"d":1.25}}', '{"deep":{"list":[{"at":"12:00"}]}}'],
    "a key": ['{"ID":7}', '{"id":7,"Id":8}'],
    "the JSON": ['{"id":1.0}', '{"id":"7"}', '{"many":7}', "[]", "7", "null"],
    "the text": ['{"id":1,"id":2}', '{"id":1} {"id":2}', '{"id":1', "", "{'id':1}", '{"f":NaN}'],
}


def decode(spark, *texts):
    """Return each decoded value as JSON, or why it could not be decoded."""
    frame = spark.createDataFrame([(number, text.encode()) for number, text in enumerate(texts)], "n int, value binary")
    frame, decoded, reason = decode_json(frame, "value", SCHEMA)
    rows = frame.select("n", F.to_json(decoded, {"ignoreNullFields": "true"}).alias("json"), reason.alias("reason"))
    return [(row["json"], row["reason"]) for row in sorted(rows.collect(), key=lambda row: row["n"])]


def test_values_that_fit_are_decoded(spark):
    expected = [json.loads(value) if isinstance(value, str) else value for _, value in KEPT]
    expected[-1] = {"deep": {"d": 1.5, "list": [None, {"at": "2024-03-15T00:00:00.000Z"}]}}
    found = decode(spark, *(text for text, _ in KEPT))
    assert [reason for _, reason in found] == [None] * len(KEPT)
    assert [json.loads(text) for text, _ in found] == expected


def test_values_that_would_change_are_not(spark):
    texts = [(begin, text) for begin, those in REFUSED.items() for text in those]
    found = decode(spark, *(text for _, text in texts))
    named = [
        (text, (reason or "no reason").removeprefix("value: "))
        for (_, text), (_, reason) in zip(texts, found, strict=True)
    ]
    assert [
        (text, reason) for (begin, _), (text, reason) in zip(texts, named, strict=True) if not reason.startswith(begin)
    ] == []


@pytest.mark.parametrize("name", ["it's", 'a "quoted" one', "a.b", "ä b"])
def test_any_name_of_a_column(spark, name):
    quoted = f"`{name}` decimal(3,1)"
    frame = spark.createDataFrame(
        [(json.dumps({name: 1.25}).encode(),), (json.dumps({name: 1.5}).encode(),)], "value binary"
    )
    frame, decoded, reason = decode_json(frame, "value", quoted)
    rows = frame.select(decoded.getField(name).cast("string").alias("v"), reason.alias("r")).collect()
    assert [(row["v"], row["r"] is None) for row in rows if row["r"] is None] == [("1.5", True)]
