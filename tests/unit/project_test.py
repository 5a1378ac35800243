"""Loading projects: Python and YAML pipelines, how they hang together, and errors that point to the user's line."""

import sys
from textwrap import dedent

import pytest

from oncelake.declare.loading import load_project
from oncelake.errors import (
    BadDeclaration,
    BadSettings,
    CyclicPipelines,
    DuplicatePipeline,
    LoadFailed,
    OverlappingWriters,
    UsageError,
)
from oncelake.model.intervals import Grid
from oncelake.patterns import PATTERNS
from oncelake.sources import SOURCES

ORDERS = """
    import oncelake as once

    @once.pipeline(
        every="day", start="2024-01-01",
        reads=once.table("bronze.orders", time="at"),
        writes=once.replace_interval("silver.orders", time="day"),
    )
    def orders(frame):
        return frame
"""
DAILY = 'every="day", start="2024-01-01"'


def declared(name, reads, writes, schedule=DAILY):
    """The Python text of one pipeline."""
    time = ', time="d"' if schedule and writes.startswith("append") else ""
    return f"""
@once.pipeline({schedule}, reads=once.table({reads!r}{time}), writes=once.{writes})
def {name}(frame):
    return frame
"""


@pytest.fixture
def make(tmp_path):
    def make_project(files, root="project"):
        for name, text in {"oncelake.yaml": "", **files}.items():
            path = tmp_path / root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(dedent(text))
        return tmp_path / root

    return make_project


def load(root, profile=None):
    return load_project(root, profile, SOURCES, PATTERNS)


def refused(error, root):
    with pytest.raises(error) as caught:
        load(root)
    assert caught.value.code == error.code
    assert caught.value.exit_code == 2
    return caught.value.facts


def of(*pipelines):
    return {"pipelines.py": "import oncelake as once\n" + "".join(pipelines)}


# Python pipelines


def test_a_file_named_pipelines_is_loaded_without_being_named(make):
    project = load(make({"pipelines.py": ORDERS}))
    (orders,) = project.pipelines.values()
    assert (orders.name, orders.grid, orders.reads_tables) == ("orders", Grid("day"), {"bronze.orders"})
    assert orders.writes_tables == {"silver.orders"}
    assert orders.where.endswith("pipelines.py:4")


def test_a_folder_named_pipelines_is_loaded_with_what_lies_below_it(make):
    root = make(
        {
            "pipelines/orders.py": ORDERS,
            "pipelines/deep/gold.py": "import oncelake as once\n" + declared("gold", "silver.orders", 'append("gold")'),
            "pipelines/more.yaml": "pipelines: {copy: {reads: {table: gold}, writes: {overwrite: mirror}}}\n",
            "pipelines/_helper.py": "raise RuntimeError('not to be loaded')\n",
            "pipelines/.hidden.py": "raise RuntimeError('not to be loaded')\n",
            "pipelines/notes.txt": "nothing",
        }
    )
    assert list(load(root).pipelines) == ["orders", "gold", "copy"]


def test_hidden_folders_below_a_folder_of_pipelines_are_left_out(make):
    root = make({"pipelines/orders.py": ORDERS, "pipelines/.ipynb_checkpoints/orders-checkpoint.py": ORDERS})
    assert list(load(root).pipelines) == ["orders"]


@pytest.mark.parametrize("entry", ["jobs/orders.py", "[jobs/orders.py]", "jobs", "[jobs]", "./jobs/../jobs/orders.py"])
def test_files_and_folders_are_named_in_the_settings(make, entry):
    root = make({"oncelake.yaml": f"pipelines: {entry}\n", "jobs/orders.py": ORDERS})
    assert list(load(root).pipelines) == ["orders"]


def test_a_file_whose_name_is_no_module_is_loaded(make):
    root = make({"oncelake.yaml": "pipelines: my-jobs/orders 2.py\n", "my-jobs/orders 2.py": ORDERS})
    assert list(load(root).pipelines) == ["orders"]


def test_a_pipeline_is_still_the_users_function(make):
    assert load(make({"pipelines.py": ORDERS})).pipelines["orders"]("frame") == "frame"


def test_the_root_is_on_the_path_while_files_load_and_not_after(make):
    root = make({"shared.py": "LIMIT = 5\n", "pipelines.py": f"from shared import LIMIT\n{dedent(ORDERS)}"})
    before = list(sys.path)
    assert load(root).pipelines["orders"].function.__globals__["LIMIT"] == 5
    assert sys.path == before


def test_pipelines_come_upstream_first_whatever_the_order_they_are_written_in(make):
    root = make(
        of(
            declared("a_last", "gold", 'overwrite("report")'),
            declared("b_middle", "silver", 'overwrite("gold")'),
            declared("c_first", "bronze", 'overwrite("silver")'),
        )
    )
    assert list(load(root).pipelines) == ["c_first", "b_middle", "a_last"]


def test_sources_are_bound_to_parameters_by_name(make):
    text = """
        import oncelake as once

        @once.pipeline(reads={"a": once.table("x"), "b": once.table("y")}, writes=once.overwrite("z"))
        def both(b, a, interval, limit=5):
            return a
    """
    both = load(make({"pipelines.py": text})).pipelines["both"]
    assert {name: source.tables for name, source in both.reads.items()} == {"a": ("x",), "b": ("y",)}
    assert both.takes_interval


# YAML pipelines

YAML_ORDERS = """
    pipelines:
      orders:
        every: day
        start: 2024-01-01
        reads: {files: "landing/{start:%Y-%m-%d}/*.json", format: json}
        transform: "jobs:clean"
        writes: {replace_interval: bronze.orders, time: day}
"""


@pytest.mark.parametrize(
    "files",
    [
        {"oncelake.yaml": YAML_ORDERS},
        {"oncelake.yaml": "pipelines: flows.yaml\n", "flows.yaml": YAML_ORDERS},
        {"oncelake.yaml": "pipelines: [flows]\n", "flows/one.yml": YAML_ORDERS},
        {"pipelines/orders.yaml": YAML_ORDERS},
    ],
)
def test_yaml_declares_the_same_pipeline_wherever_it_stands(make, files):
    root = make({**files, "jobs.py": "def clean(frame):\n    return frame + ' cleaned'\n"})
    orders = load(root).pipelines["orders"]
    assert (orders.grid, orders.start) == (Grid("day"), Grid("day").parse("2024-01-01"))
    (source,) = orders.reads.values()
    assert (source.path, source.format) == ("landing/{start:%Y-%m-%d}/*.json", "json")
    (pattern,) = orders.writes
    assert (pattern.kind, pattern.target, pattern.time) == ("replace_interval", "bronze.orders", "day")
    assert orders("frame") == "frame cleaned"


def test_yaml_stands_beside_files_in_a_list(make):
    settings = "pipelines:\n  - jobs.py\n  - copy: {reads: {table: silver.orders}, writes: {overwrite: gold}}\n"
    assert list(load(make({"oncelake.yaml": settings, "jobs.py": ORDERS})).pipelines) == ["orders", "copy"]


def test_yaml_without_a_transform_passes_the_frame_on(make):
    root = make({"oncelake.yaml": "pipelines: {copy: {reads: {table: a}, writes: {overwrite: b}}}\n"})
    assert load(root).pipelines["copy"]("frame") == "frame"


def test_yaml_reads_several_sources_and_writes_several_targets(make):
    settings = """
        pipelines:
          both:
            reads: {a: {table: x}, b: {table: y}}
            transform: jobs:both
            writes: [{overwrite: one}, {overwrite: two, allow_empty: true}]
    """
    root = make({"oncelake.yaml": settings, "jobs.py": "def both(a, b):\n    return {'one': a, 'two': b}\n"})
    both = load(root).pipelines["both"]
    assert set(both.reads) == {"a", "b"}
    assert [(pattern.target, pattern.allow_empty) for pattern in both.writes] == [("one", False), ("two", True)]


COPY = "pipelines:\n  copy:\n    reads: {table: a}\n    writes: {overwrite: b}\n"


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ("pipelines:\n  copy: 5\n", 2),
        ("pipelines:\n  copy:\n    writes: {overwrite: b}\n", 2),
        ("pipelines:\n  copy:\n    reads: {table: a}\n", 2),
        (COPY + "    evry: day\n", 5),
        (COPY + "    transform: jobs\n", 5),
        (COPY + "    transform: jobs:nothing\n", 5),
        (COPY + "    transform: nowhere:clean\n", 5),
        (COPY + "    transform: broken:clean\n", 5),
        (COPY.replace("{table: a}", "a"), 3),
        (COPY.replace("{table: a}", "{tabel: a}"), 3),
        (COPY.replace("{table: a}", "{table: ../a}"), 3),
        (COPY.replace("{table: a}", "{table: a, files: b.json}"), 3),
        (COPY.replace("{table: a}", "{table: a, tiem: at}"), 3),
        (COPY.replace("{table: a}", "{files: a.xls}"), 3),
        (COPY.replace("{overwrite: b}", "{overwrit: b}"), 4),
        (COPY.replace("{overwrite: b}", "{overwrite: }"), 4),
        (COPY.replace("{overwrite: b}", "{replace_interval: b}"), 4),
        (COPY.replace("{overwrite: b}", "[{overwrite: b}, 5]"), 4),
    ],
)
def test_a_fault_in_yaml_is_said_with_its_line(make, settings, line):
    root = make({"oncelake.yaml": settings, "jobs.py": "", "broken.py": "raise RuntimeError('x')\n"})
    assert refused(BadSettings, root)["where"] == f"oncelake.yaml:{line}"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("    every: fortnight\n    start: 2024-01-01\n", "every="),
        ("    every: day\n", "start="),
        ("    start: 2024-01-01\n", "every="),
        ("    every: day\n    start: 2024-01-01T06:00:00\n", "off the grid"),
        ("    every: week\n    start: 2024-01-03\n", "off the grid"),
        ("    every: day\n    start: 2024-01-01\n    timezone: Berlin\n", "timezone="),
        ("    every: day\n    start: tomorrow\n", "tomorrow"),
    ],
)
def test_a_schedule_that_cannot_be_meant_is_said_with_its_pipeline(make, more, why):
    facts = refused(BadDeclaration, make({"oncelake.yaml": COPY + more}))
    assert facts["where"] == "oncelake.yaml:2"
    assert why in facts["problem"]


def test_a_start_that_yaml_takes_for_a_number_is_refused(make):
    facts = refused(BadDeclaration, make({"oncelake.yaml": COPY + "    every: day\n    start: 20240101\n"}))
    assert facts["where"] == "oncelake.yaml:2"


def test_a_time_column_that_was_left_empty_is_refused(make):
    root = make({"oncelake.yaml": COPY.replace("{overwrite: b}", "{replace_interval: b, time: }")})
    assert refused(BadSettings, root)["where"] == "oncelake.yaml:4"


@pytest.mark.parametrize("value", ["5", "true"])
def test_pipelines_that_are_no_files_are_refused(make, value):
    assert refused(BadSettings, make({"oncelake.yaml": f"\npipelines: {value}\n"}))["where"] == "oncelake.yaml:2"


def test_an_unknown_key_in_a_file_of_pipelines_is_refused(make):
    flows = "lake: elsewhere\npipeline: {copy: {reads: {table: a}, writes: {overwrite: b}}}\n"
    root = make({"oncelake.yaml": "pipelines: [flows.yaml, jobs.py]\n", "flows.yaml": flows, "jobs.py": ORDERS})
    assert refused(BadSettings, root)["where"] == "flows.yaml:1"


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ("lake: a\npipelines: nothing.py\n", 2),
        ("lake: a\npipelines:\n  - jobs.py\n  - nothing.py\n", 4),
        ("lake: a\npipelines:\n  - 5\n", 3),
        ("lake: a\npipelines: ../outside.py\n", 2),
        ("lake: a\npipelines: /etc/hosts\n", 2),
        ("lake: a\npipelines: {}\n", 2),
        ("lake: a\npipelines: []\n", 2),
        ("lake: a\npipelines: empty.py\n", 2),
        ("lake: a\n", 1),
    ],
)
def test_files_that_cannot_be_loaded_are_said_with_the_line_that_names_them(make, settings, line):
    root = make({"oncelake.yaml": settings, "jobs.py": ORDERS, "empty.py": "", "../outside.py": ORDERS})
    assert refused(BadSettings, root)["where"] == f"oncelake.yaml:{line}"


# Faults in Python files


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("x = 1\ny = = 2\n", 2),
        ("x = 1\n\nraise RuntimeError('no')\n", 3),
        ("import nowhere_to_be_found\n", 1),
        ("def f():\n    return 1 / 0\n\nf()\n", 2),
        ("import sys\nsys.exit(3)\n", 2),
        ("x = (1,\n", 1),
    ],
)
def test_a_file_that_fails_to_load_is_said_with_its_line(make, text, line):
    assert refused(LoadFailed, make({"pipelines.py": text}))["where"] == f"pipelines.py:{line}"


def test_a_fault_in_an_imported_file_is_said_with_that_files_line(make):
    root = make({"pipelines.py": "import helper\n", "helper.py": "a = 1\nb = a +\n"})
    assert refused(LoadFailed, root)["where"] == "helper.py:2"


@pytest.mark.parametrize(
    ("declaration", "line"),
    [
        ('writes=once.replace_interval("../x", time="t")', 4),
        ('writes=once.replace_interval("silver.orders", time="")', 4),
        ('writes=once.overwrite("x", partition_by=["a", "a"])', 4),
        ('writes=once.overwrite("x", partition_by="a", cluster_by="b")', 4),
        ('writes=once.replace_interval("x", time="t", within="EU")', 4),
        ('writes=once.replace_partitions("x", by=[])', 4),
    ],
)
def test_a_wrong_declaration_points_to_the_line_that_has_it(make, declaration, line):
    text = f"""
        import oncelake as once

        @once.pipeline({DAILY}, reads=once.table("a"), {declaration})
        def orders(frame):
            return frame
    """
    where = refused(BadDeclaration, make({"pipelines.py": text}))["where"]
    assert where.endswith(f"pipelines.py:{line}")


@pytest.mark.parametrize(
    "arguments",
    [
        'reads=once.table("a"), writes=[]',
        'reads=once.table("a"), writes="silver.orders"',
        'reads="a", writes=once.overwrite("b")',
        'reads={"other": once.table("a")}, writes=once.overwrite("b")',
        'reads=once.table("a"), writes=[once.overwrite("b"), once.overwrite("b")]',
        'reads=once.table("a"), writes=once.append("b")',
        'reads=once.table("a", time="t"), writes=once.overwrite("b")',
        'reads=once.files("x/{start}/*.json"), writes=once.overwrite("b")',
        'reads=once.table("a"), writes=once.overwrite("b"), every="day"',
        'reads=once.table("a"), writes=once.overwrite("b"), name="a\\nb"',
    ],
)
def test_a_pipeline_that_cannot_be_meant_points_to_its_function(make, arguments):
    text = f"import oncelake as once\n\n\n@once.pipeline({arguments})\ndef orders(frame):\n    return frame\n"
    assert refused(BadDeclaration, make({"pipelines.py": text}))["where"].endswith("pipelines.py:4")


# How pipelines hang together


def test_a_circle_is_refused(make):
    root = make(
        of(
            declared("one", "c", 'overwrite("a")'),
            declared("two", "a", 'overwrite("b")'),
            declared("three", "b", 'overwrite("c")'),
        )
    )
    circle = refused(CyclicPipelines, root)["circle"].split(" → ")
    assert circle[0] == circle[-1]
    assert set(circle) == {"one", "two", "three"}


def test_a_pipeline_that_reads_what_it_writes_is_a_circle(make):
    assert refused(CyclicPipelines, make(of(declared("one", "a", 'overwrite("a")'))))["circle"] == "one → one"


def test_a_name_given_twice_is_refused_with_both_places(make):
    root = make({"pipelines/a.py": ORDERS, "pipelines/b.py": ORDERS})
    facts = refused(DuplicatePipeline, root)
    assert facts["name"] == "orders"
    assert facts["first"].endswith("a.py:4")
    assert facts["second"].endswith("b.py:4")


APPEND, OVERWRITE = 'append("t")', 'overwrite("t")'
INTERVAL = 'replace_interval("t", time="d"{})'
EU, US = (INTERVAL.format(f', within={{"region": "{region}"}}') for region in ("EU", "US"))
BOTH = INTERVAL.format(', within={"region": ["EU", "US"]}')
OTHER = INTERVAL.format(', within={"country": "DE"}')


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (INTERVAL.format(""), INTERVAL.format("")),
        (APPEND, INTERVAL.format("")),
        (APPEND, OVERWRITE),
        (OVERWRITE, EU),
        (EU, EU),
        (EU, BOTH),
        (EU, OTHER),
        (EU, APPEND),
        ('overwrite("T")', OVERWRITE),
    ],
)
def test_two_owners_of_the_same_rows_are_refused(make, one, other):
    facts = refused(OverlappingWriters, make(of(declared("first", "a", one), declared("second", "b", other))))
    assert facts["target"].casefold() == "t"
    assert facts["first"].startswith("first (")
    assert facts["second"].startswith("second (")


@pytest.mark.parametrize(("one", "other"), [(APPEND, APPEND), (EU, US), (OVERWRITE, 'overwrite("t2")')])
def test_owners_of_different_rows_share_a_table(make, one, other):
    root = make(of(declared("first", "a", one), declared("second", "b", other)))
    assert set(load(root).pipelines) == {"first", "second"}


def test_a_table_inside_the_folder_of_another_is_refused(make):
    root = make(of(declared("first", "a", OVERWRITE), declared("second", "b", 'overwrite("t.x")')))
    with pytest.raises(UsageError):
        load(root)


# Several projects in one process


def test_two_projects_with_the_same_module_names_keep_apart(make):
    def text(word):
        return {
            "pipelines.py": f"import oncelake as once\nfrom helper import WORD\n"
            f"{declared('orders', 'a', 'overwrite(WORD)')}",
            "helper.py": f"WORD = {word!r}\n",
        }

    one, other = make(text("one"), "one"), make(text("other"), "other")
    assert [load(root).pipelines["orders"].writes_tables for root in (one, other, one)] == [{"one"}, {"other"}, {"one"}]


def test_code_that_needs_a_session_at_import_is_named_as_such(make):
    root = make({"pipelines.py": "raise RuntimeError('[SESSION_OR_CONTEXT_NOT_EXISTS]')\n"})
    assert "no session yet" in refused(LoadFailed, root)["problem"]


def test_a_project_is_loaded_anew_every_time(make):
    root = make({"pipelines.py": ORDERS})
    first = load(root)
    (root / "pipelines.py").write_text(dedent(ORDERS).replace("def orders", "def orders_renamed"))
    assert list(first.pipelines) == ["orders"]
    assert list(load(root).pipelines) == ["orders_renamed"]


def test_a_project_leaves_none_of_its_modules_behind(make):
    root = make({"pipelines/orders.py": f"import helper_of_this_test\n{dedent(ORDERS)}", "helper_of_this_test.py": ""})
    before = set(sys.modules)
    load(root)
    assert not {name for name in set(sys.modules) - before if not name.startswith("oncelake")}


def test_a_project_that_fails_to_load_leaves_nothing_behind_either(make):
    root = make({"pipelines.py": "import helper_of_this_test\nraise RuntimeError\n", "helper_of_this_test.py": ""})
    path, before = list(sys.path), set(sys.modules)
    refused(LoadFailed, root)
    assert sys.path == path
    assert set(sys.modules) == before


def test_a_module_of_the_same_name_from_elsewhere_is_still_there_afterwards(make, tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "helper_of_this_test.py").write_text("WORD = 'elsewhere'\n")
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    import helper_of_this_test as elsewhere

    text = (
        f"import oncelake as once\nfrom helper_of_this_test import WORD\n{declared('orders', 'a', 'overwrite(WORD)')}"
    )
    root = make({"pipelines.py": text, "helper_of_this_test.py": "WORD = 'project'\n"})
    try:
        assert load(root).pipelines["orders"].writes_tables == {"project"}
        assert sys.modules["helper_of_this_test"] is elsewhere
    finally:
        del sys.modules["helper_of_this_test"]


def test_a_profile_is_that_of_the_settings(make):
    settings = "lake: here\nprofiles: {prod: {lake: 's3://there'}}\n"
    assert load(make({"oncelake.yaml": settings, "pipelines.py": ORDERS}), "prod").settings.lake == "s3://there"
