"""The pinned schema: types by name, inference and evolution by policy."""

import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncelake.sources.arrivals.parsing.records import DRIFT
from oncelake.sources.arrivals.schema_evolution import Evolution, evolve, policy_of, policy_problem
from oncelake.sources.arrivals.schema_inference import Drift, apply_hints, drift_of, infer, unify, widen
from oncelake.sources.arrivals.schema_spelled import parse_arrow_type
from oncelake.sources.arrivals.schema_store import PinnedSchema
from oncelake.sources.arrivals.schema_types import MAX_DEPTH, normalize, parse_schema, parse_type, type_name

UTC = pa.timestamp("us", tz="UTC")
SCALARS = [pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()]
SCALARS += [pa.string(), pa.binary(), pa.date32(), UTC, pa.timestamp("us"), pa.decimal128(10, 2), pa.decimal128(38, 0)]
NAMES = st.text(min_size=1, max_size=8)
PLAIN_NAMES = st.from_regex(r"[a-zé_ ][a-z0-9/é_]{0,6}", fullmatch=True)


def types(names):
    """Types of columns, nested in every way, with the names of fields drawn from a strategy."""

    def nested(inner):
        fields = st.lists(st.tuples(names, inner), min_size=1, max_size=3, unique_by=lambda each: each[0].casefold())
        return st.one_of(inner.map(pa.list_), fields.map(pa.struct), inner.map(lambda each: pa.map_(pa.string(), each)))

    return st.recursive(st.sampled_from(SCALARS), nested, max_leaves=6)


def pinned(ddl, version=1):
    return PinnedSchema(version, parse_schema(ddl), "first")


def ddl(schema):
    return ", ".join(f"{each.name} {type_name(each.type)}" for each in schema)


def evolved(before, *drift, policy="evolve", tables=()):
    fixed = [parse_schema(table) for table in tables]
    found = evolve(pinned(before), [Drift(*each) for each in drift], policy, fixed)
    return ddl(found.following.schema) if found.following else found.outcome


# Types by name.


@given(types(NAMES))
def test_type_names_round_trip(arrow):
    assert parse_type(type_name(arrow)) == arrow


@given(types(PLAIN_NAMES))
def test_spelled_types_round_trip(arrow):
    assert parse_arrow_type(str(arrow)) == arrow


@given(types(NAMES))
def test_spelled_types_with_odd_names_never_raise_anything_but_value_errors(arrow):
    infer([Drift("a", str(arrow), 1)])


@given(st.lists(st.tuples(NAMES, types(NAMES)), max_size=4, unique_by=lambda each: each[0].casefold()))
def test_schemas_in_ddl_round_trip(columns):
    quoted = [("`" + name.replace("`", "``") + "`", arrow) for name, arrow in columns]
    text = ", ".join(f"{name} {type_name(arrow)}" for name, arrow in quoted)
    assert parse_schema(text) == pa.schema(columns)


@given(st.text(max_size=40) | st.from_regex(r"[a-z`<>(),:' 0-9]{0,30}", fullmatch=True))
def test_any_other_text_is_a_schema_or_a_value_error(text):
    for read in (parse_schema, parse_type, parse_arrow_type):
        try:
            read(text)
        except ValueError as error:
            assert str(error)  # noqa: PT017  most of the texts are none


def test_names_of_types_are_sparks():
    text = (
        "a tinyint, b smallint, c int, d bigint, e float, f double, g string, h binary, i boolean, j date, k timestamp"
    )
    text += ", l timestamp_ntz, m decimal(10,2), n array<struct<`x y`:bigint,z:map<string,array<date>>>>"
    assert ddl(parse_schema(text)) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ID BIGINT NOT NULL COMMENT 'the key, it''s unique', s STRING", "ID bigint, s string"),
        ("a long, b integer, c short, d byte, e real", "a bigint, b int, c smallint, d tinyint, e float"),
        ("f dec, g numeric(5)", "f decimal(10,0), g decimal(5,0)"),
        ("d: struct<x: int NOT NULL COMMENT 'it\\'s', y string>", "d struct<x:int,y:string>"),
        ("a varchar(20), b char(3), c timestamp_ltz, d bool", "a string, b string, c timestamp, d boolean"),
        ("größe double", "größe double"),
        ("", ""),
    ],
)
def test_ddl_as_spark_users_write_it(text, expected):
    assert ddl(parse_schema(text)) == expected


def test_quoted_names_may_have_any_sign():
    assert parse_schema("`a b``c, d` int, `` int").names == ["a b`c, d", ""]


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "a int b",
        "a int,, b int",
        "a intt",
        "a array<int",
        "a array<int>>",
        "a decimal(39,0)",
        "a decimal(2,3)",
        "a int(3)",
        "a decimal(x)",
        "a map<string>",
        "a struct<b>",
        "a int NOT",
        "a int COMMENT b",
        "a int, A string",
        "`a int",
        "(a int)",
    ],
)
def test_what_is_wrong_with_a_schema_is_said(text):
    with pytest.raises(ValueError, match=re.escape(repr(text))):
        parse_schema(text)


def test_types_that_spark_lacks_are_held_by_wider_ones():
    for given_, expected in [
        (pa.uint8(), "smallint"),
        (pa.uint64(), "decimal(20,0)"),
        (pa.large_string(), "string"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.timestamp("ns", tz="Europe/Berlin"), "timestamp"),
        (pa.time64("us"), "string"),
        (pa.decimal256(50, 3), "string"),
        (pa.large_list(pa.field("x", pa.uint16(), nullable=False)), "array<int>"),
        (pa.list_(pa.binary(16), 2), "array<binary>"),
    ]:
        assert type_name(given_) == expected
        if "dictionary" not in str(given_):
            assert parse_arrow_type(str(given_)) == normalize(given_)


def test_types_nested_too_deeply_are_refused():
    deep = "list<item: " * MAX_DEPTH + "int64" + ">" * MAX_DEPTH
    with pytest.raises(ValueError, match="too deeply"):
        parse_type("array<" * 5000 + "int" + ">" * 5000)
    assert infer([Drift("a", deep, 1), Drift("b", "int64", 1), Drift("c", "dense_union<x: int8=0>", 1)]).names == ["b"]


# Unifying types.


@given(types(PLAIN_NAMES), types(PLAIN_NAMES))
def test_types_of_a_new_column_always_unify_to_one_that_holds_both(one, other):
    both = unify(one, other)
    assert unify(both, one) == both
    assert unify(both, other) == both
    assert unify(one, one) == one == unify(one, pa.null()) == unify(pa.null(), one)


@given(types(PLAIN_NAMES), types(PLAIN_NAMES))
def test_a_pinned_type_is_widened_or_refused(one, other):
    both = unify(one, other, pinned=True)
    wider = widen(one, other)
    assert widen(wider, other) == wider
    assert both is None or both == wider


@pytest.mark.parametrize(
    ("one", "other", "new", "of_pinned"),
    [
        ("tinyint", "smallint", "smallint", "smallint"),
        ("int", "bigint", "bigint", "bigint"),
        ("bigint", "int", "bigint", "bigint"),
        ("float", "double", "double", "double"),
        ("bigint", "double", "double", None),
        ("double", "bigint", "double", None),
        ("decimal(10,2)", "decimal(8,4)", "decimal(12,4)", "decimal(12,4)"),
        ("decimal(10,2)", "bigint", "decimal(21,2)", "decimal(21,2)"),
        ("bigint", "decimal(10,2)", "decimal(21,2)", None),
        ("decimal(38,0)", "decimal(38,38)", "string", None),
        ("double", "decimal(10,2)", "string", None),
        ("boolean", "bigint", "string", None),
        ("date", "timestamp", "string", None),
        ("timestamp", "timestamp_ntz", "string", None),
        ("string", "bigint", "string", None),
        ("array<int>", "array<bigint>", "array<bigint>", "array<bigint>"),
        ("array<int>", "array<string>", "array<string>", None),
        ("array<int>", "int", "string", None),
        ("struct<a:int>", "struct<b:date>", "struct<a:int,b:date>", "struct<a:int,b:date>"),
        ("struct<a:int>", "struct<a:date>", "struct<a:string>", None),
        ("map<string,int>", "map<string,bigint>", "map<string,bigint>", "map<string,bigint>"),
        ("map<string,int>", "struct<a:int>", "string", None),
    ],
)
def test_unify(one, other, new, of_pinned):
    arrow = parse_type(one), parse_type(other)
    assert type_name(unify(*arrow)) == new
    widened = unify(*arrow, pinned=True)
    assert widened == (parse_type(of_pinned) if of_pinned else None)


def test_a_field_that_differs_only_by_case_is_not_added():
    other = pa.struct([("a", pa.int64()), ("A", pa.int64())])
    assert unify(parse_type("struct<a:int>"), other) == parse_type("struct<a:bigint>")


# Inference and hints.


def test_inference_keeps_the_order_of_the_columns_and_unifies_what_was_seen():
    drift = [("id", "int64", 9), ("z", "double", 1), ("a", "null", 9), ("z", "int64", 3), ("b", "list<item: null>", 2)]
    drift += [("t", "timestamp[us, tz=UTC]", 1), ("s", "struct<x: null, y: int64>", 1), ("b", "list<item: string>", 1)]
    drift += [("mixed", "bool", 1), ("mixed", "int64", 1), ("only empty", "struct<>", 1)]
    found = infer([Drift(*each) for each in drift])
    assert ddl(found) == "id bigint, z double, b array<string>, t timestamp, s struct<y:bigint>, mixed string"


def test_names_that_cannot_be_columns_are_not_inferred():
    names = ["a", "A", "", " ", "_rescued", "_Rescued", "_once_line", "_ONCE_x", "straße", "b.c", "d e"]
    assert infer([Drift(name, "int64", 1) for name in names]).names == ["a", "straße", "b.c", "d e"]


def test_hints_win_over_inference():
    schema = parse_schema("id bigint, Amount double, at string")
    hints = parse_schema("amount decimal(10,2), later date")
    assert ddl(apply_hints(schema, hints)) == "id bigint, Amount decimal(10,2), at string, later date"


def test_drift_of_a_table_is_added_up():
    table = pa.table([["a", "b", "a", "a"], ["int64", "int64", "int64", "bool"], [1, 2, 3, 4]], schema=DRIFT)
    assert drift_of(table) == [Drift("a", "int64", 4), Drift("b", "int64", 2), Drift("a", "bool", 4)]


# Evolution.


def test_evolution_adds_columns_at_the_end_and_widens_types():
    before = "qty int, price float, cost decimal(10,2), s struct<a:int>, l array<tinyint>"
    drift = [
        ("z", "string", 1),
        ("b", "int64", 1),
        ("qty", "int64", 2),
        ("price", "double", 1),
        ("cost", "decimal128(12, 3)", 1),
    ]
    drift += [("s", "struct<a: int64, n: date32[day]>", 1), ("l", "list<item: int16>", 1)]
    expected = (
        "qty bigint, price double, cost decimal(12,3), s struct<a:bigint,n:date>, l array<smallint>, b bigint, z string"
    )
    assert evolved(before, *drift) == expected
    found = evolve(pinned(before, version=7), [Drift(*each) for each in drift])
    assert (found.outcome, found.following.version, found.rescued) == ("changed", 8, ())
    assert "add b bigint (1 row)" in found.following.reason
    assert "widen qty from int to bigint (2 rows)" in found.following.reason


@given(
    st.permutations([("b", "int64", 1), ("a", "struct<x: int64>", 2), ("a", "struct<y: string>", 2), ("q", "int64", 5)])
)
def test_the_order_of_the_reports_does_not_matter(drift):
    assert evolved("q int", *drift) == "q bigint, a struct<x:bigint,y:string>, b bigint"


@pytest.mark.parametrize(
    ("before", "seen"),
    [
        ("qty bigint", "double"),
        ("qty bigint", "string"),
        ("d date", "timestamp[us, tz=UTC]"),
        ("b boolean", "int64"),
        ("s string", "int64"),
        ("s struct<a:int>", "string"),
        ("x double", "decimal128(30, 2)"),
        ("qty bigint", "int32"),
        ("x bigint", "null"),
        ("x bigint", "what is this"),
        ("s struct<a:int>", "struct<A: int64>"),
    ],
)
def test_nothing_else_is_changed(before, seen):
    assert evolved(before, (before.split()[0], seen, 3)) == "unchanged"


def test_what_does_not_fit_hides_nothing_that_fits():
    drift = [("s", "struct<a: string, b: int64>", 1), ("s", "string", 4), ("qty", "double", 3), ("qty", "int64", 3)]
    found = evolve(pinned("s struct<a:int>, qty int"), [Drift(*each) for each in drift])
    assert ddl(found.following.schema) == "s struct<a:int,b:bigint>, qty bigint"
    assert [each.partition(" is ")[0] for each in found.rescued] == ["column 'qty'", "column 's'"]


def test_a_name_that_differs_only_by_case_is_never_added():
    found = evolve(pinned("id bigint"), [Drift("ID", "int64", 3)])
    assert (found.outcome, found.rescued) == ("unchanged", ("there is no column 'ID': 3 rows have it (bigint)",))
    assert (
        evolved("id bigint", ("Name", "string", 2), ("NAME", "string", 5), ("name", "string", 1))
        == "id bigint, NAME string"
    )


def test_rescue_changes_nothing_and_says_what_is_rescued():
    found = evolve(pinned("id int"), [Drift("id", "int64", 1), Drift("new", "string", 2)], "rescue")
    assert found.outcome == "unchanged"
    assert found.rescued == (
        "column 'id' is int: 1 row needs bigint",
        "there is no column 'new': 2 rows have it (string)",
    )


def test_freeze_says_everything_that_does_not_fit():
    drift = [
        Drift("id", "double", 3),
        Drift("new", "string", 1),
        Drift("new", "list<item: null>", 1),
        Drift("x", "null", 9),
    ]
    found = evolve(pinned("id bigint"), drift, "freeze")
    assert found == Evolution(
        refused=(
            "column 'id' is bigint: 3 rows need double",
            "there is no column 'new': 2 rows have it (array<void>, string)",
        )
    )
    assert found.outcome == "frozen"
    assert evolve(pinned("id bigint"), [Drift("x", "null", 9)], "freeze").outcome == "unchanged"
    assert evolve(pinned("id bigint"), [], "freeze") == Evolution()


def test_policies_by_column():
    policy = {"*": "rescue", "id": "freeze", "extra": "evolve"}
    drift = [("qty", "int64", 1), ("extra", "string", 1), ("other", "string", 1)]
    assert evolved("id bigint, qty int", *drift, policy=policy) == "id bigint, qty int, extra string"
    assert evolved("id bigint, qty int", *drift, ("id", "double", 1), policy=policy) == "frozen"
    assert policy_of({"Extra": "freeze"}, "extra") == "freeze"
    assert policy_of({"*": "freeze"}, "*") == "freeze"
    assert policy_of({"a": "freeze"}, "b") == "evolve"


def test_wrong_policies_are_named():
    assert policy_problem("evolve") is None
    assert policy_problem({"*": "freeze", "id": "rescue"}) is None
    assert "did you mean 'freeze'" in policy_problem("freez")
    assert "of column 'id'" in policy_problem({"id": "add"})
    assert policy_problem(None)
    assert policy_problem({1: "evolve"})


@given(
    st.lists(st.tuples(PLAIN_NAMES, types(PLAIN_NAMES)), max_size=4, unique_by=lambda each: each[0].casefold()),
    st.lists(st.tuples(PLAIN_NAMES, types(PLAIN_NAMES)), max_size=5),
)
def test_a_schema_only_grows_and_settles(columns, seen):
    before = PinnedSchema(1, pa.schema(columns), "first")
    drift = [Drift(name, str(arrow), 1) for name, arrow in seen]
    after = evolve(before, drift).following or before
    assert after.schema.names[: len(columns)] == before.schema.names
    assert len({name.casefold() for name in after.schema.names}) == len(after.schema.names)
    assert all(widen(arrow, after.schema.field(name).type) == after.schema.field(name).type for name, arrow in columns)
    assert evolve(after, drift).outcome == "unchanged"
    assert PinnedSchema.from_json(after.to_json()) == after


# What the tables of a pipeline can take.


@pytest.mark.parametrize(
    ("before", "seen", "table", "after"),
    [
        ("a int", "int64", "a int", "unchanged"),
        ("a int", "int64", "A int", "unchanged"),
        ("a float", "double", "a float", "unchanged"),
        ("a decimal(5,2)", "decimal128(20, 4)", "a decimal(5,2)", "unchanged"),
        ("a int", "int64", "b int", "a bigint"),  # the function drops or renames it
        ("a int", "int64", "a string", "a bigint"),  # the function converts it
        ("a int", "int64", "a bigint", "a bigint"),
        ("a struct<b:int>", "struct<b: int64, c: string>", "a struct<b:int>", "a struct<b:int,c:string>"),
        ("a array<int>", "list<item: int64>", "a array<int>", "unchanged"),
        ("a map<string,int>", "map<string, int64>", "a map<string,int>", "unchanged"),
    ],
)
def test_a_column_stays_as_narrow_as_a_table_that_cannot_widen_it(before, seen, table, after):
    assert evolved(before, ("a", seen, 1), tables=[table]) == after
    assert evolved(before, ("a", seen, 1), tables=["z int", table]) == after


@pytest.mark.parametrize("name", ["bad col", "a,b", "a;b", "a{b", "a(b)", "a=b", "a\nb", "a\tb"])
def test_a_new_column_with_a_name_that_delta_refuses_is_not_added(name):
    assert evolved("id bigint", (name, "int64", 1)) == "unchanged"
    assert evolved("id bigint", (name, "int64", 1), ("good", "int64", 1)) == "id bigint, good bigint"
    assert [each.name for each in infer([Drift(name, "int64", 1)])] == [name]  # the function renames it


def test_a_new_field_with_a_name_that_delta_refuses_is_not_added():
    assert evolved("id bigint", ("a", "struct<b c: int64>", 1)) == "unchanged"
    assert evolved("id bigint", ("a", "struct<b c: int64, d: int64>", 1)) == "id bigint, a struct<d:bigint>"
    assert evolved("a struct<d:bigint>", ("a", "struct<b c: int64, d: int64>", 1)) == "unchanged"
