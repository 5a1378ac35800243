"""The commands as users and scripts call them: documents, exit codes, and no JVM where none is needed."""

import json
import os
import subprocess
import sys

import pytest

import oncelake as once
from support.lakes import DAYS, make_project, orders_of
from support.processes import ONCELAKE

PIPELINES = """
import oncelake as once

@once.pipeline(every="day", start="2024-03-14", reads=once.files("landing/{start:%Y-%m-%d}/*.json"),
               writes=once.replace_interval("silver.orders", time="day"))
def orders(files):
    print("printed by the user's function")
    return files.selectExpr("id", "DATE(at) AS day")
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory, spark):
    """A project with two of three days done."""
    root = make_project(tmp_path_factory.mktemp("cli"), PIPELINES)
    for day in DAYS:
        folder = root / "landing" / day
        folder.mkdir(parents=True)
        (folder / "orders.json").write_text("".join(json.dumps(order) + "\n" for order in orders_of(day)))
    for day in DAYS[:2]:
        assert once.open(root, spark=spark).run("orders", date=day).outcome == "done"
    return root


def oncelake(*arguments, root, **environment):
    command = [ONCELAKE, *arguments, *(["--project", str(root)] if root else [])]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


def test_run_with_nothing_to_do_prints_one_document(root):
    done = oncelake("run", "--from", DAYS[0], "--to", DAYS[2], "--json", root=root)
    document = json.loads(done.stdout)
    assert (done.returncode, document["outcome"]) == (0, "done")
    assert document["works"][1] == {
        "pipeline": "orders",
        "target": "silver.orders",
        "slice": "[2024-03-15, 2024-03-16)",
        "start": "2024-03-15T00:00:00Z",
        "end": "2024-03-16T00:00:00Z",
        "generation": 1,
        "outcome": "already_done",
        "version": 2,
        "rows": {"read": None, "written": 3, "deleted": 0, "quarantined": 0},
        "seconds": 0.0,
        "error": None,
        "code": None,
    }
    assert "[2024-03-14, 2024-03-16), 2 intervals" in done.stderr


def test_plan_says_what_and_why(root):
    document = json.loads(oncelake("plan", "--from", DAYS[0], "--to", "2024-03-17", "--json", root=root).stdout)
    assert document["pipelines"] == [{"pipeline": "orders", "range": "[2024-03-14, 2024-03-17)", "intervals": 3}]
    assert [(work["action"], work["why"]) for work in document["works"]] == [
        ("skip", "done"),
        ("skip", "done"),
        ("run", "not done yet"),
    ]


def test_status_and_history(root):
    standing = json.loads(oncelake("status", "--json", root=root).stdout)["pipelines"][0]
    assert (standing["done"], standing["ranges"], standing["version"]) == (2, ["[2024-03-14, 2024-03-16)"], 2)
    history = json.loads(oncelake("history", "silver.orders", "--limit", "1", "--json", root=root).stdout)
    assert [(c["version"], c["slice"], c["rows"]["written"]) for c in history["commits"]] == [
        (2, "[2024-03-15, 2024-03-16)", 3)
    ]


def test_people_get_tables(root):
    assert "silver.orders" in oncelake("status", root=root).stdout
    assert "[2024-03-15, 2024-03-16)" in oncelake("history", "silver.orders", root=root).stdout
    assert "not done yet" in oncelake("plan", root=root).stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["run", "ordres"], "unknown_pipeline"),
        (["run", "--date", "yesterday"], "bad_range"),
        (["run", "--date", "2024-03-15T05:00"], "bad_range"),
        (["run", "--from", "2024-03-16", "--to", "2024-03-15"], "bad_range"),
        (["run", "--from", "2024-03-16", "--to", "2024-03-16"], "bad_range"),
        (["run", "--date", "2024-03-13"], "bad_range"),
        (["run", "--date", "2999-01-01"], "bad_range"),
        (["plan", "nothing"], "unknown_pipeline"),
        (["history", "nothing"], "unknown_target"),
    ],
    ids=" ".join,
)
def test_usage_faults_exit_2_with_a_document(root, arguments, code):
    done = oncelake(*arguments, "--json", root=root)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (2, code)
    assert "next: " in done.stderr


def test_options_that_exclude_each_other_exit_2(root):
    assert oncelake("run", "--date", "2024-03-14", "--to", "2024-03-15", root=root).returncode == 2


def test_no_project_exits_2(tmp_path):
    assert oncelake("status", root=tmp_path).returncode == 2


NO_JVM = [
    ["--help"],
    ["--version"],
    ["status"],
    ["plan"],
    ["history", "silver.orders"],
    ["run", "--from", DAYS[0], "--to", DAYS[2]],
]


@pytest.mark.parametrize("arguments", NO_JVM, ids=" ".join)
def test_no_java_is_needed_where_there_is_no_work(root, arguments, tmp_path):
    at = root if arguments[0][0] != "-" else None
    done = oncelake(*arguments, root=at, PATH=str(tmp_path), JAVA_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("arguments", NO_JVM, ids=" ".join)
def test_no_pyspark_is_imported_where_there_is_no_work(root, arguments):
    script = (
        "import sys; from oncelake.cli.main import cli\n"
        f"try: cli({['--project', str(root), *arguments]!r})\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "print(sorted({'pyspark', 'delta', 'py4j', 'pandas', 'deltalake'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "[]"


def test_what_is_left_of_libraries_cannot_abort_a_command_that_started_no_spark(tmp_path):
    """Threads of Arrow and delta-rs abort a process at times while the interpreter ends; here it always happens."""
    aborts = "import atexit, os\nimport pyspark.sql\natexit.register(os.abort)\n"
    root = make_project(tmp_path, aborts + PIPELINES)
    done = oncelake("status", "--json", root=root)
    assert (done.returncode, json.loads(done.stdout)["pipelines"][0]["pipeline"]) == (0, "orders")


def test_a_machine_without_java_is_told_what_to_install(root, tmp_path):
    done = oncelake("run", "--date", DAYS[2], "--json", root=root, PATH=str(tmp_path), JAVA_HOME="")
    work = json.loads(done.stdout)["works"][0]
    assert (done.returncode, work["code"]) == (1, "spark_unavailable")
    assert "apt-get install openjdk-17" in work["error"]


def test_completion_knows_the_commands():
    environment = {"_ONCELAKE_COMPLETE": "bash_complete", "COMP_WORDS": "oncelake st", "COMP_CWORD": "1"}
    assert "plain,status" in oncelake(root=None, **environment).stdout
    assert "_oncelake_completion" in oncelake("completion", "bash", root=None).stdout


def test_a_new_project_runs_as_it_is_and_prints_one_document(tmp_path):
    folder = tmp_path / "new"
    assert oncelake("init", str(folder), root=None).returncode == 0
    assert oncelake("init", str(folder), root=None).returncode == 2
    pipelines = folder / "pipelines.py"
    pipelines.write_text(pipelines.read_text().replace("    return bronze", "    bronze.show()\n    return bronze"))
    done = oncelake("run", "--json", root=folder)
    document = json.loads(done.stdout)
    assert (done.returncode, document["outcome"]) == (0, "done")
    assert [work["rows"]["written"] for work in document["works"]] == [30, 27]
    assert oncelake("run", root=folder).stdout.endswith("done: 2 already done\n")
