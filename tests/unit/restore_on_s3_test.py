"""`restore` on S3 goes by the commit protocol: a lost answer, a competing commit and a store that is gone, without Spark.

The command runs in a process of its own: delta-rs holds Python's lock during a restore, and the store is in this process.
"""

import json
import subprocess
import sys

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake
from obstore.store import S3Store

import oncelake as once
from oncelake.model.intervals import Grid
from oncelake.model.markers import marker
from oncelake.storage.options import delta_rs_options
from support.s3 import ACCESS_KEY, LOST_ANSWER, REGION, SECRET_KEY, Fault, new_bucket, proxy, s3_server

GRID = Grid("day")
DAYS = list(GRID.cells(GRID.parse("2024-03-01"), GRID.parse("2024-03-04")))
CONFIG = {"region": REGION, "access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY}
OTHER = json.dumps({"commitInfo": {"timestamp": 1, "operation": "OTHER", "operationParameters": {}}}).encode()
PIPELINES = """
import oncelake as once

@once.pipeline(every="day", start="2024-03-01", reads=once.table("raw", time="at"), writes=once.append("app"))
def appending(raw):
    return raw
"""
COMMAND = "from oncelake.running import commit; commit.FIRST_PAUSE = 0.01; from oncelake.cli.main import main; main()"


@pytest.fixture(scope="module")
def server():
    with s3_server() as address:
        yield address


@pytest.fixture
def store(server, monkeypatch, tmp_path):
    """A proxy in front of S3, a project with a table of three days there, and the bucket behind the proxy."""
    with proxy(server) as front:
        bucket = new_bucket(server)
        environment = {"AWS_ENDPOINT_URL": front.address, "AWS_REGION": REGION, "AWS_ALLOW_HTTP": "true"}
        environment |= {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        (tmp_path / "oncelake.yaml").write_text(f"lake: s3a://{bucket}/lake\n")
        (tmp_path / "pipelines.py").write_text(PIPELINES)
        project = once.open(tmp_path)
        for day in DAYS:
            append_day(project, day)
        direct = S3Store(bucket, config={**CONFIG, "endpoint": server}, client_options={"allow_http": True})
        yield front, project, direct


def restore(project):
    """Restore the first version by the command; return its exit code and its document."""
    command = [sys.executable, "-c", COMMAND, "restore", "app", "--to", "0", "--yes", "--json"]
    ended = subprocess.run(command, cwd=project.settings.root, capture_output=True, text=True, check=False, timeout=100)
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.returncode, json.loads(ended.stdout)


def append_day(project, day):
    path, mark = project.lake.table("app").path, marker("appending", "app", day, 1)
    facts = {"pipeline": "appending", "target": "app", "slice": day.text, "generation": 1, "code": "c"}
    properties = CommitProperties(
        {"userMetadata": json.dumps({"oncelake": facts})}, app_transactions=[Transaction(mark.app_id, mark.version)]
    )
    rows = pa.table({"at": pa.array([day.start], pa.timestamp("us", "UTC"))})
    options = delta_rs_options(path)
    write_deltalake(path, rows, mode="append", commit_properties=properties, storage_options=options)


def is_commit(method, path):
    return method == "PUT" and "/lake/app/_delta_log/" in path and path.endswith(".json")


def operations(project):
    return [entry.operation for entry in project.history("app")]


def put_before_commits(direct, left):
    """Return a fault that commits the version of each of the next commits first, as another writer would."""

    def fault(method, path, _):
        if left and is_commit(method, path):
            left.pop()
            direct.put(path.partition("?")[0].split("/", 2)[2], OTHER)

    return fault


def test_a_lost_answer_to_the_commit_is_recognised_as_our_own(store):
    front, project, _ = store
    front.once(LOST_ANSWER, is_commit)
    code, restored = restore(project)
    assert front.hit
    assert (code, restored["version"], restored["from_version"], len(restored["undone"])) == (0, 3, 2, 2)
    assert operations(project) == ["RESTORE", "WRITE", "WRITE", "WRITE"]


def test_a_competing_commit_is_a_conflict_and_the_restore_starts_from_it(store):
    front, project, direct = store
    front.fault = put_before_commits(direct, ["other"])
    code, restored = restore(project)
    assert (code, restored["version"], restored["from_version"]) == (0, 4, 3)
    assert operations(project)[:3] == ["RESTORE", "OTHER", "WRITE"]


def test_a_restore_that_is_always_overtaken_is_busy(store):
    front, project, direct = store
    front.fault = put_before_commits(direct, ["other"] * 20)
    code, document = restore(project)
    assert (code, document["error"]["code"]) == (4, "busy")
    assert document["error"]["next"] == "oncelake restore app --to 0"
    assert set(operations(project)) == {"OTHER", "WRITE"}


def test_a_later_commit_of_another_writer_is_not_undone(store):
    front, project, direct = store
    seen = []

    def other_commits_after(method, path, _):
        if seen == ["restore"]:
            seen.append("other")
            direct.put("lake/app/_delta_log/00000000000000000004.json", OTHER)
        if is_commit(method, path):
            seen.append("restore")

    front.fault = other_commits_after
    code, restored = restore(project)
    assert (code, restored["version"]) == (0, 3)
    assert operations(project)[:2] == ["OTHER", "RESTORE"]


def test_an_outcome_that_nobody_can_read_is_said_to_be_unknown(store):
    front, project, _ = store
    lost = []

    def store_is_gone_after_the_commit(method, path, _):
        if is_commit(method, path):
            lost.append(path)
            return LOST_ANSWER
        return Fault(403, "AccessDenied") if lost else None

    front.fault = store_is_gone_after_the_commit
    code, document = restore(project)
    assert (code, document["error"]["code"]) == (1, "outcome_unknown")
    assert document["error"]["next"] == "oncelake restore app --to 0"
