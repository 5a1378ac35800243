"""For every type Spark has, and nestings of them, some values that all differ, each spelled in two ways that are equal.

A value is known by its place in the pool, so what is equal needs no look at the code under test.
"""

import random
from dataclasses import dataclass
from functools import cache

NULLS_ONLY = "NULL"
LEAVES = {
    "boolean": ["true", "false"],
    "tinyint": ["0", "1", "-1", "127", "-128"],
    "smallint": ["0", "1", "-1", "32767", "16"],
    "int": ["0", "1", "-1", "2147483647", "12", "1234"],
    "bigint": ["0", "1", "-1", "9223372036854775807", "4294967296"],
    "float": [("0.0F", "-0.0F"), "1.5F", "float('NaN')", "float('inf')", "-float('inf')", "1.4E-45F", "1.0000001F"],
    "double": [
        *(("0.0D", "-0.0D"), ("double('NaN')", "-double('NaN')"), "double('inf')", "-double('inf')"),
        *("1.0D", "1.0000000000000002D", "-1.0D", "4.9E-324D", "1.7976931348623157E308D", "1e23D"),
    ],
    "decimal(5,2)": ["0", "0.01", "-0.01", "1", "999.99"],
    "decimal(18,3)": ["0", "0.001", "-0.001", "999999999999999.999", "1"],
    "decimal(38,2)": ["0", "0.01", "-0.01", "123456789012345678901234567890123456.78", "1"],
    "decimal(38,18)": ["0", "1e-18BD", "-1e-18BD", "1e-7BD", "12345678901234567890.123456789012345678", "1"],
    "string": [
        *("''", "' '", "'a'", "'A'", "'a '", "','", "';'", "':'", "'0'", "'1'", "'0:'", "'n'", "'null'", "'s'"),
        *("'\\u00e9'", "'e\\u0301'", "'\\u0000'", "cast(X'FF' as string)", "cast(X'FE' as string)"),
    ],
    "string collate utf8_lcase": ["''", "'a'", "'A'", "'\\u00e9'", "'\\u00c9'"],
    "binary": ["X''", "X'00'", "X'0000'", "X'61'", "X'FF'", "X'2C'"],
    "date": ["date'1970-01-01'", "date'2024-02-29'", "date'0001-01-01'", "date'9999-12-31'", "date'1969-12-31'"],
    "timestamp": [
        ("timestamp'2024-03-31 01:30:00Z'", "timestamp'2024-03-31 07:00:00+05:30'"),
        *("timestamp'2024-03-31 01:30:00.000001Z'", "timestamp'1969-12-31 23:59:59.999999Z'"),
        *("timestamp'1970-01-01 00:00:00Z'", "timestamp'0001-01-01 00:00:00Z'"),
    ],
    "timestamp_ntz": [
        *("timestamp_ntz'2024-03-31 02:30:00'", "timestamp_ntz'2024-03-31 02:30:00.000001'"),
        *("timestamp_ntz'1970-01-01 00:00:00'", "timestamp_ntz'1969-12-31 23:59:59.999999'"),
    ],
    "time(6)": ["time'00:00:00'", "time'00:00:00.000001'", "time'23:59:59.999999'", "time'12:00:00'"],
    "interval day to second": [
        *("interval '0' day", "interval '1' day", "interval '-1' day", "interval '0.000001' second"),
        *("interval '1' hour", "interval '60' second"),
    ],
    "interval year to month": [
        "interval '0' month",
        ("interval '12' month", "interval '1' year"),
        "interval '1' month",
    ],
    "variant": [
        *("parse_json('1')", "parse_json('\"1\"')", "parse_json('null')", "parse_json('{}')", "parse_json('[]')"),
        *("parse_json('[null]')", "parse_json('true')", "parse_json('\"true\"')", "parse_json('[[1],[2]]')"),
        *("parse_json('[[1,2]]')", "cast(date'2024-01-01' as variant)", "cast('2024-01-01' as variant)"),
        ("parse_json('1.5')", "parse_json('1.50')"),
        ("""parse_json('{"a": 1, "b": {"c": 2, "d": 3}}')""", """parse_json('{"b":{"d":3,"c":2},"a":1}')"""),
        *("""parse_json('{"a": "1"}')""", """parse_json('{"a": null}')""", "cast(1.5D as variant)"),
        "cast(timestamp'2024-03-31 01:30:00Z' as variant)",
    ],
}
NESTED = (
    *("array<string>", "array<int>", "array<double>", "array<timestamp>", "array<binary>", "array<variant>"),
    *("array<string collate utf8_lcase>", "array<decimal(38,18)>", "array<array<int>>", "array<array<string>>"),
    *("map<string,int>", "map<int,string>", "map<double,array<string>>", "map<string,map<string,int>>"),
    *("map<string,variant>", "map<binary,timestamp>", "struct<a:int,b:string>", "array<struct<a:int,b:string>>"),
    *("struct<a:array<int>,b:array<int>>", "map<struct<a:int,b:string>,int>", "map<array<int>,struct<a:date>>"),
    *("array<map<string,int>>", "struct<a:struct<a:struct<a:string>>,b:map<string,struct<a:int,b:array<string>>>>"),
    *("struct<a:variant,b:boolean>", "array<interval day to second>", "map<date,interval year to month>"),
    *("array<time(6)>", "struct<a:float,b:tinyint,c:smallint,d:timestamp_ntz>"),
)


@dataclass(frozen=True)
class Pool:
    """Values of one type: a null and some that all differ, each with its two spellings."""

    kind: str
    values: tuple[tuple[str, str], ...]

    @property
    def spelled(self):
        return [f"CAST({one} AS {self.kind})" for one, _ in self.values]

    @property
    def respelled(self):
        return [f"CAST({other} AS {self.kind})" for _, other in self.values]


@cache
def pools():
    """A pool for every column, by name."""
    rng = random.Random(20_240_315)
    kinds = [*LEAVES, *NESTED, *(_random_kind(rng, 3) for _ in range(10))]
    return {f"c{n}": Pool(kind, tuple(_some(kind, rng))) for n, kind in enumerate(kinds)}


def _random_kind(rng, depth, key=False):
    barred = {"variant", "string collate utf8_lcase"} if key else {"string collate utf8_lcase"}
    match rng.choice(["leaf", "array", "struct"] + ["map"] * (not key)) if depth else "leaf":
        case "array":
            return f"array<{_random_kind(rng, depth - 1, key)}>"
        case "map":
            return f"map<{_random_kind(rng, depth - 1, key=True)},{_random_kind(rng, depth - 1)}>"
        case "struct":
            return (
                "struct<"
                + ",".join(f"{n}:{_random_kind(rng, depth - 1, key)}" for n in "abc"[: rng.randint(1, 3)])
                + ">"
            )
        case _:
            return rng.choice([leaf for leaf in LEAVES if leaf not in barred])


def _some(kind, rng, most=12):
    """A null and up to so many values of a type; what they are made of tells them apart."""
    found = {}
    for _ in range(most * 4):
        made, spelling = _value(kind, rng)
        if len(found) < most:
            found.setdefault(made, spelling)
    if kind in LEAVES:
        found = dict(enumerate(_leaf(kind)))
    return [("NULL", "NULL"), *found.values()]


def _leaf(kind):
    return [value if isinstance(value, tuple) else (value, value) for value in LEAVES[kind]]


def _value(kind, rng, null=0.0):
    """What a random value is made of, and its two spellings."""
    if rng.random() < null:
        return None, (f"CAST(NULL AS {kind})",) * 2
    if kind in LEAVES:
        place = rng.randrange(len(LEAVES[kind]))
        return place, tuple(f"CAST({text} AS {kind})" for text in _leaf(kind)[place])
    outer, inner = kind[:-1].split("<", 1)
    arguments = _split(inner)
    if outer == "array":
        items = [_value(arguments[0], rng, 0.2) for _ in range(rng.choice([0, 1, 1, 2, 2, 3]))]
        return tuple(made for made, _ in items), _called("array", [[s] for _, s in items], kind)
    if outer == "struct":
        fields = [field.split(":", 1) for field in arguments]
        items = [(name, *_value(of, rng, 0.2)) for name, of in fields]
        return tuple(made for _, made, _ in items), _called(
            "named_struct", [[(f"'{n}'",) * 2, s] for n, _, s in items], kind
        )
    entries = {}
    for _ in range(rng.choice([0, 1, 2, 2, 3])):
        made, spelling = _value(arguments[0], rng)
        entries.setdefault(made, (spelling, *_value(arguments[1], rng, 0.2)))
    made = frozenset((key, value) for key, (_, value, _) in entries.items())
    spellings = [[key, value] for key, _, value in entries.values()]
    one, _ = _called("map", spellings, kind)
    _, other = _called("map", spellings[::-1], kind)
    return made, (one, other)


def _called(name, groups, kind):
    """A function called with both spellings of its arguments."""
    flat = [spelling for group in groups for spelling in group]
    return tuple(f"CAST({name}({', '.join(s[side] for s in flat)}) AS {kind})" for side in (0, 1))


def _split(inner):
    """The arguments of a type, split at the commas of this level."""
    parts, depth = [""], 0
    for letter in inner:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
