"""Beyond one process: patterns on a standalone cluster, a cold run on a warm Connect server, status on a slow object store,
two drivers on one table. Servers are started on loopback and stopped afterwards; the large log has a bench of its own.
"""

import itertools
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import oncelake as once
from bench.clock import best_of, figure
from bench.days import BIN, make_project

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.places import started
from support.s3 import ACCESS_KEY, REGION, SECRET_KEY, new_bucket, proxy, s3_server

ROWS, MERGED, TABLES, LATENCY, APPENDS = 5_000_000, 1_000_000, 20, 0.02, 12
SPAN = ("2024-03-15", "2024-03-16")
DAY = "2024-03-01"
PREDICATE = "day >= DATE'2024-03-15' AND day < DATE'2024-03-16'"
STORAGE = """
lake: "s3a://{bucket}/lake"
pipelines: pipelines.py
lock_timeout: 600
storage: {{endpoint: "{endpoint}", region: {region}, path_style: true, allow_http: true,
          access_key: "${{BENCH_ACCESS_KEY}}", secret_key: "${{BENCH_SECRET_KEY}}"}}
"""
MANY = """
import oncelake as once

def declare(number):
    @once.pipeline(name=f"p{{number}}", every="day", start="2024-03-01", reads=once.files("landing/{{start:%Y-%m-%d}}/*.json"),
                   writes=once.append(f"silver.t{{number}}"))
    def copy(files):
        return files
    return copy

pipelines = [declare(number) for number in range({tables})]
"""


def measure():
    yield from _connect()
    yield from _status()
    yield from _drivers()
    yield from _cluster()


def _cluster():
    """Each pattern by `once.write` and by hand with a marker, on the same cluster, in the same session."""
    from oncelake.spark.session import open_session

    with tempfile.TemporaryDirectory() as folder:
        cluster = started("cluster", folder)
        try:
            spark = open_session(cluster.settings)
            columns = ("id", "id % 1000 AS customer", "CAST(id AS STRING) AS note", "DATE'2024-03-15' AS day")
            for name in ("append", "replace_interval", "overwrite", "merge"):
                rows = MERGED if name == "merge" else ROWS
                frame = spark.range(rows).selectExpr(*columns)
                yield _pattern(spark, frame, name, Path(folder) / "lakes" / name, rows)
            spark.stop()
        finally:
            cluster.stop()


def _pattern(spark, frame, name, folder, rows):
    from delta.tables import DeltaTable

    numbers = itertools.count()
    patterns = {
        "append": once.append("t"),
        "replace_interval": once.replace_interval("t", time="day"),
        "overwrite": once.overwrite("t"),
        "merge": once.merge("t", keys="id", any_order=True),
    }

    def ours():
        span = SPAN if name == "replace_interval" else None
        work = f"bench/{next(numbers)}" if span is None else f"bench{next(numbers)}"
        assert once.write(frame, patterns[name], work=work, lake=str(folder), interval=span).outcome == "committed"

    def by_hand():
        # The equivalent: the same rows, written once. Delta looks up the marker in the state of the table, as for ours.
        path, number = str(folder / "bare"), str(next(numbers))
        if name == "merge" and DeltaTable.isDeltaTable(spark, path):
            latest = frame.dropDuplicates(["id"])
            merging = DeltaTable.forPath(spark, path).alias("t").merge(latest.alias("s"), "t.id = s.id")
            for key, value in (("txnAppId", "by hand"), ("txnVersion", number)):
                spark.conf.set(f"spark.databricks.delta.write.{key}", value)
            merging.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
            for key in ("txnAppId", "txnVersion"):
                spark.conf.unset(f"spark.databricks.delta.write.{key}")
            return
        writer = frame.write.format("delta").mode("append" if name in ("append", "merge") else "overwrite")
        writer = writer.option("txnAppId", "by hand").option("txnVersion", number)
        (writer.option("replaceWhere", PREDICATE) if name == "replace_interval" else writer).save(path)

    for job in (ours, by_hand, ours, by_hand):
        job()
    best = best_of(3, ours=ours, by_hand=by_hand)
    ratio = round(best["ours"] / best["by_hand"], 3)
    return figure(f"{name} on a cluster, {rows:,} rows: ours / by hand, with a marker", ratio, "×", "≤ 1.1", **best)


def _connect():
    """A cold `oncelake run` of one small day: on a warm Connect server, and with a JVM of its own."""
    with tempfile.TemporaryDirectory() as folder:
        server = started("connect", folder)
        try:
            numbers = itertools.count()

            def fresh():
                root = Path(folder) / str(next(numbers))
                root.mkdir()
                make_project(root, 1)
                text = (root / "oncelake.yaml").read_text()
                remote = f'{{spark: {{spark.remote: "{server.address}"}}}}'
                (root / "oncelake.yaml").write_text(f"{text}profiles:\n  local: {{}}\n  connect: {remote}\n")
                return root

            def run(profile):
                return lambda root: subprocess.run(
                    [BIN / "oncelake", "run", "--date", DAY, "-p", root, "--profile", profile],
                    check=True,
                    capture_output=True,
                )

            run("connect")(fresh())
            best = best_of(5, fresh, connect=run("connect"), local=run("local"))
        finally:
            server.stop()
    ratio = round(best["connect"] / best["local"], 3)
    yield figure("cold run of one small day: warm Connect server / local mode", ratio, "×", "≤ 0.3", **best)


def _environment():
    import os

    # With byte code, as an installed package has it: to compile every module at every start takes 0.3 s.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**environment, "BENCH_ACCESS_KEY": ACCESS_KEY, "BENCH_SECRET_KEY": SECRET_KEY}


def _status():
    """`status` of many tables on a store that takes its time for every request."""
    with tempfile.TemporaryDirectory() as folder, s3_server() as address, proxy(address) as store:
        root, env = Path(folder), _environment()
        make_project(root, 2)
        (root / "pipelines.py").write_text(MANY.format(tables=TABLES))
        settings = STORAGE.format(bucket=new_bucket(address), endpoint=store.address, region=REGION)
        (root / "oncelake.yaml").write_text(settings)
        subprocess.run(
            [BIN / "oncelake", "run", "--to", "2024-03-03", "-p", root], check=True, env=env, capture_output=True
        )
        status = [BIN / "oncelake", "status", "-p", root, "--json"]
        store.latency = LATENCY
        store.requests.clear()
        best = best_of(3, status=lambda: subprocess.run(status, check=True, env=env, capture_output=True))
        requests = len(store.requests) // 3
    what = f"status of {TABLES} tables on S3, {LATENCY * 1000:.0f} ms per request, {requests} requests"
    yield figure(what, round(best["status"], 3), "s", "≤ 1.5", **best)


def _drivers():
    """Appends of different works to one table on S3: by one driver, and by two at once."""
    driver = Path(__file__).parents[1] / "tests" / "support" / "s3_driver.py"
    with tempfile.TemporaryDirectory() as folder, s3_server() as address:
        root, bucket = Path(folder), new_bucket(address)
        make_project(root, 1)
        settings = STORAGE.format(bucket=bucket, endpoint=address, region=REGION)
        (root / "oncelake.yaml").write_text(f"{settings}profiles:\n  s3: {{}}\n")
        drivers = [_Driver(driver, root) for _ in range(2)]
        try:
            for each in drivers:
                each.ask("warm")
                each.answer()
            path = f"s3a://{bucket}/lake/shared"
            alone = _appends(drivers[:1], path, "alone")
            both = _appends(drivers, path, "both")
        finally:
            for each in drivers:
                each.process.kill()
    yield figure("appends per minute on S3, one driver", round(alone, 1), "/min", "")
    yield figure("appends per minute on S3, two drivers / one", round(both / alone, 3), "×", "")


def _appends(drivers, path, name):
    """Return how many acknowledged appends there were per minute."""
    started_at, done = time.perf_counter(), 0
    for number in range(APPENDS):
        for index, each in enumerate(drivers):
            each.ask("append", path, f"{name}-{index}-{number}", [f"{name}-{index}-{number}"])
        for each in drivers:
            done += each.answer() == "written"
    return done * 60 / (time.perf_counter() - started_at)


class _Driver:
    """A process with a session of its own that is told what to do."""

    def __init__(self, script, root):
        import os

        reading, writing = os.pipe()
        command = [sys.executable, script, root, "s3", str(writing)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, text=True, pass_fds=[writing], env=_environment(), stdout=subprocess.DEVNULL
        )
        os.close(writing)
        self.answers = os.fdopen(reading)

    def ask(self, name, *arguments):
        self.process.stdin.write(json.dumps([name, arguments, {}]) + "\n")
        self.process.stdin.flush()

    def answer(self):
        found = json.loads(self.answers.readline())
        assert "error" not in found, found["error"]
        return found["answer"]
