"""A lake on S3, by a server on loopback: two drivers at once, writes that fail half-way, lost answers, a store that fails for a while.

Two processes with a session each are started once and told what to do. The store is reached through a proxy that can fail.
"""

import json
import os
import runpy
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from obstore.store import S3Store

from oncelake.spark.jars import LOG_STORE, LOG_STORE_JAR
from oncelake.spark.session import log_folder
from oncelake.storage.lease import LeaseFiles
from support.lakes import DAYS, land, land_days, make_project, orders_of
from support.s3 import (
    ACCESS_KEY,
    CONFLICT,
    INTERNAL_ERROR,
    LOST_ANSWER,
    REGION,
    SECRET_KEY,
    SLOW_DOWN,
    TIMEOUT,
    all_objects,
    new_bucket,
    proxy,
    s3_server,
)

DRIVER = Path(__file__).parents[1] / "support" / "s3_driver.py"
EXISTS = "java.nio.file.FileAlreadyExistsException"
KEYS, ROUNDS, MORE_ROUNDS = 60, 4, 30
PIPELINES = """
import oncelake as once
from pyspark.sql import functions as F

DAILY = {
    "every": "day", "start": "2024-03-14",
    "reads": once.files("landing/{start:%Y-%m-%d}/*.json", schema="id long, amount double, at string"),
}


@once.pipeline(**DAILY, writes=once.replace_interval("silver.orders", time="at"))
def orders(files):
    return files.withColumn("at", F.to_timestamp("at"))


@once.pipeline(**DAILY | {"start": "2024-04-01"}, writes=once.replace_interval("silver.ranges", time="at"))
def ranges(files):
    return files.withColumn("at", F.to_timestamp("at"))


@once.pipeline(**DAILY, writes=once.merge("silver.customers", keys=["id"], latest_by="at"))
def customers(files):
    return files.withColumn("id", F.expr("id % 2"))
"""
SETTINGS = """
pipelines: pipelines.py
profiles:
  s3:
    lake: s3a://{bucket}/lake
    storage:
      endpoint: {endpoint}
      region: {region}
      allow_http: true
      access_key: ${{LAKE_ACCESS_KEY}}
      secret_key: ${{LAKE_SECRET_KEY}}
    spark:
      spark.hadoop.fs.s3a.multipart.size: 5M
      spark.hadoop.fs.s3a.retry.interval: 50ms
"""


class Driver:
    """A process with a Spark session of its own."""

    def __init__(self, root, folder):
        folder.mkdir()
        self.output = [folder / "stdout", folder / "stderr"]
        read, write = os.pipe()
        # Without what the tests tell other sessions, and without credentials by the names that libraries look for.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        environment |= {"LAKE_ACCESS_KEY": ACCESS_KEY, "LAKE_SECRET_KEY": SECRET_KEY}
        self.process = subprocess.Popen(
            [sys.executable, str(DRIVER), str(root), "s3", str(write)],
            stdin=subprocess.PIPE,
            stdout=self.output[0].open("w"),
            stderr=self.output[1].open("w"),
            pass_fds=[write],
            env=environment,
            text=True,
        )
        os.close(write)
        self.answers = os.fdopen(read)

    def tell(self, name, *arguments, **options):
        self.process.stdin.write(json.dumps([name, arguments, options]) + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.answers.readline()
        assert line, self.output[1].read_text()[-3000:]
        found = json.loads(line)
        assert "error" not in found, found["error"]
        return found["answer"]

    def ask(self, name, *arguments, **options):
        self.tell(name, *arguments, **options)
        return self.answer()

    def end(self):
        self.process.stdin.close()
        self.process.wait(60)


@pytest.fixture(scope="module")
def server():
    with s3_server() as address:
        yield address


@pytest.fixture(scope="module")
def front(server):
    with proxy(server) as made:
        made.bucket = new_bucket(server)
        made.lake = f"s3a://{made.bucket}/lake"
        yield made


@pytest.fixture(autouse=True)
def calm(front):
    front.calm()


@pytest.fixture(scope="module")
def root(front, tmp_path_factory):
    settings = SETTINGS.format(bucket=front.bucket, endpoint=front.address, region=REGION)
    made = make_project(tmp_path_factory.mktemp("s3") / "project", PIPELINES, settings)
    land_days(made)
    return made


@pytest.fixture(scope="module")
def drivers(root):
    """Two drivers. The first runs a command before anything else, which starts its session as it does for users."""
    made = [Driver(root, root.parent / name) for name in ("first", "second")]
    made[0].tell("command", "run", "orders", "customers", "--date", DAYS[0], "--json")
    made[1].tell("warm")
    made[0].exit_code, made[1].log_store = made[0].answer(), made[1].answer()
    made[0].log_store = made[0].ask("warm")
    yield made
    for driver in made:
        driver.end()


@pytest.fixture(scope="module")
def first(drivers):
    return drivers[0]


def commits(front, table):
    """Return the commits of a table, as the store has them."""
    log = f"lake/{table}/_delta_log/"
    found = all_objects(front.server, front.bucket)
    return [found[key].decode() for key in sorted(found) if key.startswith(log) and key.endswith(".json")]


def works(front, table):
    """Return the app id of every marker in the commits of a table."""
    actions = [json.loads(line) for commit in commits(front, table) for line in commit.splitlines()]
    return [action["txn"]["appId"] for action in actions if "txn" in action]


def is_commit(method, path):
    return method == "PUT" and "_delta_log/0" in path and path.endswith(".json")


def outcomes(report):
    return [work["outcome"] for work in report["works"]]


def test_a_command_on_s3_needs_nothing_but_the_profile(first, front, root):
    assert first.exit_code == 0, first.output[1].read_text()
    assert first.log_store == LOG_STORE
    document = json.loads(first.output[0].read_text().splitlines()[0])
    assert outcomes(document) == ["committed", "committed"]
    assert first.ask("command", "status", "orders", "customers", "--json") == 0
    status = json.loads(first.output[0].read_text().splitlines()[1])
    assert status["environment"]["profile"] == "s3"
    assert status["environment"]["several_drivers"] is True
    assert [each["done"] for each in status["pipelines"]] == [1, 1]
    assert "safe for one driver" not in first.output[1].read_text()


def test_no_credential_is_in_any_file_or_output(first, front, root):
    # One error, too: nothing is landed for this day.
    assert first.ask("command", "run", "--date", "2024-03-20") == 1
    assert first.ask("command", "plan", "--json") == 0
    texts = all_objects(front.server, front.bucket)
    assert any("ledger" in name for name in texts)
    assert any("leases" in name for name in texts)
    files = [path for path in [*root.parent.rglob("*"), *log_folder().rglob("*")] if path.is_file()]
    assert len(files) > 5
    texts |= {str(path): path.read_bytes() for path in files}
    for secret in (ACCESS_KEY.encode(), SECRET_KEY.encode()):
        assert [name for name, content in texts.items() if secret in content] == []
    # Nor on a command line that everybody on the machine can read.
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [line for line in lines if SECRET_KEY.encode() in line]


def test_the_jars_are_prepared_by_one_command():
    command = [sys.executable, "-m", "oncelake.spark.prepare"]
    done = subprocess.run([*command, "--s3"], capture_output=True, text=True, check=True)
    jars = [Path(line) for line in done.stdout.splitlines() if line.endswith(".jar")]
    assert len(jars) == 2 + 36 + 1
    assert all(jar.is_file() for jar in jars)
    assert sum(jar.stat().st_size for jar in jars[2:]) < 15e6, "the bundle of 686 MB is among them"
    assert subprocess.run([*command, "--s4"], capture_output=True, check=False).returncode == 1


def test_the_class_in_the_package_is_what_its_source_compiles_to(tmp_path):
    javac = shutil.which("javac")
    if javac is None or b"javac 17." not in subprocess.run([javac, "-version"], capture_output=True, check=True).stdout:
        pytest.skip("the compiler that built the jar is not here: another may compile the same source to other bytes")
    build = runpy.run_path(str(Path(__file__).parents[2] / "java" / "build.py"))["build"]
    build(tmp_path / "built.jar")
    with zipfile.ZipFile(tmp_path / "built.jar") as built, zipfile.ZipFile(LOG_STORE_JAR) as shipped:
        assert {name: built.read(name) for name in built.namelist()} == {n: shipped.read(n) for n in shipped.namelist()}


def test_of_two_drivers_that_write_one_key_exactly_one_wins(drivers, front):
    for key in range(KEYS):
        front.meet(f"race/{key:020}.json")
    for name, driver in zip("AB", drivers, strict=True):
        driver.tell("race", f"{front.lake}/race", KEYS, name)
    results = list(zip(*(driver.answer() for driver in drivers), strict=True))
    assert [sorted(result) for result in results] == [[EXISTS, "written"]] * KEYS
    stored = all_objects(front.server, front.bucket)
    winners = ["AB"[result.index("written")] for result in results]
    assert [stored[f"lake/race/{key:020}.json"].decode() for key in range(KEYS)] == [f"{name}\n" for name in winners]
    assert len(front.met) == KEYS


def test_a_write_that_fails_half_way_publishes_nothing(first, front):
    for put, arguments in (("put", ["one", "two", 3]), ("put_large", 2)):
        path = f"{front.lake}/half/{put}.json"
        more = {"last": 3} if put == "put_large" else {}
        assert first.ask(put, path, arguments, **more) == "java.lang.ClassCastException"
        assert f"lake/half/{put}.json" not in all_objects(front.server, front.bucket)
        # An overwrite that fails leaves what was there.
        assert first.ask("put", path, ["before"]) == "written"
        assert first.ask("put", path, ["after", 3], overwrite=True) == "java.lang.ClassCastException"
        assert all_objects(front.server, front.bucket)[f"lake/half/{put}.json"] == b"before\n"


def test_a_large_commit_is_uploaded_in_parts_and_still_created_once(first, front):
    path = f"{front.lake}/large/0.json"
    assert first.ask("put_large", path, 2) == "written"
    assert any("uploadId" in request for _, request in front.requests)
    assert first.ask("put_large", path, 2) == EXISTS
    assert first.ask("put", path, ["small"]) == EXISTS


def test_a_conflict_of_writers_at_the_same_moment_is_a_loss_only_if_another_has_won(first, front):
    path = f"{front.lake}/conflict/0.json"
    front.in_turn([CONFLICT] * 100, lambda method, _: method == "PUT")
    assert first.ask("put", path, ["a"]).startswith("org.apache.hadoop.fs.s3a.")
    front.calm()
    assert first.ask("put", path, ["b"]) == "written"
    front.in_turn([CONFLICT] * 100, lambda method, _: method == "PUT")
    assert first.ask("put", path, ["c"]) == EXISTS


def test_a_commit_whose_answer_was_lost_is_recognised(first, front):
    path = f"{front.lake}/lost"
    assert first.ask("append", path, "created", ["0"]) == "written"
    front.once(LOST_ANSWER, is_commit)
    assert first.ask("append", path, "lost", ["1"]) == "written"
    assert front.hit
    assert first.ask("read", path) == ["0", "1"]
    assert len(commits(front, "lost")) == 2
    front.calm()
    front.once(LOST_ANSWER, lambda method, path: is_commit(method, path) and "/orders/" in path)
    assert outcomes(first.ask("run", "orders", date=DAYS[1])) == ["committed"]
    assert front.hit
    assert sum(f"/{DAYS[1]}" in work for work in works(front, "silver/orders")) == 1


def test_a_store_that_fails_for_a_while_delays_a_run_and_changes_nothing(first, front):
    faults = [None, None, INTERNAL_ERROR, None, SLOW_DOWN, None, LOST_ANSWER, None, None] * 12
    front.in_turn(faults)
    assert outcomes(first.ask("run", "customers", date=DAYS[2])) == ["committed"]
    assert {fault for _, _, fault in front.hit} == {INTERNAL_ERROR, SLOW_DOWN, LOST_ANSWER}
    front.calm()
    assert outcomes(first.ask("run", "customers", date=DAYS[2])) == ["already_done"]
    assert sum(f"/{DAYS[2]}" in work for work in works(front, "silver/customers")) == 1


@pytest.mark.long
def test_requests_that_are_never_answered_delay_a_run_and_change_nothing(first, front, root):
    land(root, "2024-03-17", orders_of("2024-03-17"))
    for pipeline, ending in (("orders", ".json"), ("customers", ".parquet")):
        table = f"/silver/{pipeline}/"
        front.once(TIMEOUT, lambda method, path, t=table, e=ending: method == "PUT" and t in path and path.endswith(e))
        assert outcomes(first.ask("run", pipeline, date="2024-03-17")) == ["committed"]
        assert front.hit
        front.calm()
        assert sum("/2024-03-17" in work for work in works(front, table.strip("/"))) == 1


def rounds_of_two_drivers(drivers, front, rounds, table):
    """Both commit the next version at the same moment: in even rounds each its own work, in odd rounds the same work."""
    path, version, expected = f"{front.lake}/{table}", 0, ["created"]
    assert drivers[0].ask("append", path, "created", expected) == "written"
    for number in range(rounds):
        version += 1
        front.meet(f"{table}/_delta_log/{version:020}.json")
        works = [f"{number}-{name}" if number % 2 == 0 else f"{number}" for name in "AB"]
        for work, driver in zip(works, drivers, strict=True):
            driver.tell("append", path, work, [work])
        answers = sorted(driver.answer() for driver in drivers)
        if number % 2 == 0:
            version += 1
            assert answers == ["written", "written"], "appends of different works do not conflict"
        else:
            assert answers == ["CONFLICT", "written"], "the same work is committed by one"
        expected += sorted(set(works))
    assert len(front.met) == rounds
    return sorted(expected), drivers[1].ask("read", path)


def test_two_drivers_lose_nothing_and_double_nothing(drivers, front):
    expected, found = rounds_of_two_drivers(drivers, front, ROUNDS, "two")
    assert found == expected


@pytest.mark.long
def test_two_drivers_lose_nothing_and_double_nothing_in_many_rounds(drivers, front):
    expected, found = rounds_of_two_drivers(drivers, front, MORE_ROUNDS, "many")
    assert found == expected


def test_two_runners_of_the_same_work_commit_it_once(drivers, front, root):
    land(root, "2024-03-18", orders_of("2024-03-18"))
    for driver in drivers:
        driver.tell("run", "orders", date="2024-03-18")
    assert sorted(outcomes(driver.answer()) for driver in drivers) == [["already_done"], ["committed"]]
    assert sum("/2024-03-18" in work for work in works(front, "silver/orders")) == 1


def versions(front, table):
    """Return the slice of every marker in a table, with its generation, in the order of the commits."""
    actions = [json.loads(line) for commit in commits(front, table) for line in commit.splitlines()]
    found = [action["txn"] for action in actions if "txn" in action]
    return [(txn["appId"].rpartition("/")[2].replace("T00:00:00Z", ""), txn["version"]) for txn in found]


def direct_store(front):
    options = {"endpoint": front.server, "region": REGION, "access_key_id": "a", "secret_access_key": "b"}
    return S3Store(front.bucket, config=options, client_options={"allow_http": True})


def expire_lease(front, table):
    """Let the lease of a suspended holder expire now, and not in a minute."""
    leases = LeaseFiles(direct_store(front), f"lake/_oncelake/leases/{table}")
    leases.end(leases.newest()[0])


def land_range(root, first, amount):
    """Land orders of three days, with one amount each."""
    days = [f"2024-04-{first + number:02}" for number in range(3)]
    for day in days:
        land(root, day, [{"id": int(day[-2:]), "amount": amount, "at": f"{day}T06:00:00Z"}])
    return days, {"start": days[0], "end": f"2024-04-{first + 3:02}"}


def day_after(day):
    return f"2024-04-{int(day[-2:]) + 1:02}"


def amounts(first, front, days):
    """Return the amounts of some days."""
    found = first.ask("amounts", f"{front.lake}/silver/ranges")
    return [found.get(str(int(day[-2:]))) for day in days]


def test_a_range_on_s3_is_one_commit(first, front, root):
    days, span = land_range(root, 1, 1.0)
    assert outcomes(first.ask("run", "ranges", **span)) == ["committed"]
    assert versions(front, "silver/ranges") == [("2024-04-01..2024-04-04", 1)]
    assert outcomes(first.ask("run", "ranges", **span)) == ["already_done"]
    assert amounts(first, front, days) == [[1.0]] * 3


@pytest.mark.parametrize("new", [False, pytest.param(True, marks=pytest.mark.long)], ids=["table", "new table"])
def test_a_suspended_holder_does_not_overwrite_a_day_that_was_restated_meanwhile_by_its_range(
    drivers, front, root, new
):
    holder, other = drivers
    days, span = land_range(root, 7 if new else 4, 1.0)
    if new:
        keys = all_objects(front.server, front.bucket)
        direct_store(front).delete([key for key in keys if key.startswith("lake/silver/ranges/")])
    before = len(versions(front, "silver/ranges"))
    holder.tell("run_pausing", "committing", "ranges", **span)
    assert holder.answer() == "paused"
    expire_lease(front, "silver.ranges")
    assert outcomes(other.ask("run", "ranges", date=days[1])) == ["committed"]
    land(root, days[1], [{"id": int(days[1][-2:]), "amount": 2.0, "at": f"{days[1]}T06:00:00Z"}])
    assert outcomes(other.ask("restate", "ranges", date=days[1])) == ["committed"]
    holder.process.stdin.write("go on\n")
    holder.process.stdin.flush()
    report = holder.answer()
    assert {work["outcome"] for work in report["works"]} == {"committed", "already_done"}
    assert amounts(other, front, days) == [[1.0], [2.0], [1.0]]
    written = [slice_ for slice_, _ in versions(front, "silver/ranges")[before:] if not slice_.startswith("restate")]
    assert sorted(written) == sorted(f"{days[n]}..{day_after(days[n])}" for n in (0, 1, 1, 2))


def test_a_suspended_holder_of_a_day_does_not_overwrite_a_range_that_it_did_not_know_of(drivers, front, root):
    holder, other = drivers
    days, span = land_range(root, 10, 1.0)
    holder.tell("run_pausing", "committing", "ranges", date=days[1])
    assert holder.answer() == "paused"
    expire_lease(front, "silver.ranges")
    land_range(root, 10, 2.0)
    assert outcomes(other.ask("run", "ranges", **span)) == ["committed"]
    holder.process.stdin.write("go on\n")
    holder.process.stdin.flush()
    assert outcomes(holder.answer()) == ["already_done"]
    assert amounts(other, front, days) == [[2.0]] * 3
