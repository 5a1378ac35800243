"""Thirty days of orders: oncelake against SQLMesh and dbt-core on DuckDB, each in its own virtual environment."""

import itertools
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from bench.clock import best_of, figure
from bench.days import BIN, FIRST, ORDERS, make_project
from oncelake.delta.log import read_log

DAYS, ROUNDS = 30, 3
SPAN = {"start": str(FIRST), "last": str(FIRST + timedelta(days=DAYS - 1)), "end": str(FIRST + timedelta(days=DAYS))}

# Kept for the next run, because installing takes longer than measuring.
HOMES = Path(tempfile.gettempdir()) / "oncelake-bench-peers"
# No telemetry, so that neither tool waits for a server.
QUIET = {"SQLMESH__DISABLE_ANONYMIZED_ANALYTICS": "1", "DBT_SEND_ANONYMOUS_USAGE_STATS": "false"}

SQLMESH = {
    "config.yaml": """
gateways:
  local:
    connection: {{type: duckdb, database: lake.db}}
default_gateway: local
model_defaults: {{dialect: duckdb, start: "{start}"}}
""",
    "models/orders.sql": """
MODEL (
  name bronze.orders,
  kind INCREMENTAL_BY_TIME_RANGE (time_column ordered_at),
  start '{start}', end '{last}', cron '@daily'
);
SELECT id::BIGINT AS id, amount::DOUBLE AS amount, ordered_at::TIMESTAMP AS ordered_at
FROM read_json('{landing}/*/orders.json')
WHERE ordered_at BETWEEN @start_ts AND @end_ts
""",
}
DBT = {
    "dbt_project.yml": "name: orders\nversion: '1.0'\nprofile: local\n",
    "profiles.yml": """
local:
  target: dev
  outputs:
    dev: {{type: duckdb, path: lake.db, threads: {cores}}}
""",
    "models/sources.yml": """
sources:
  - name: landing
    tables:
      - name: orders
        config:
          event_time: ordered_at
          meta: {{external_location: "read_json('{landing}/*/orders.json')"}}
""",
    "models/orders.sql": """
{{{{ config(
    materialized="incremental", incremental_strategy="microbatch",
    event_time="ordered_at", batch_size="day", begin="{start}"
) }}}}
select id, amount, ordered_at::timestamp as ordered_at from {{{{ source("landing", "orders") }}}}
""",
}


class NotInstalled(Exception):
    """A peer could not be installed here."""


@dataclass(frozen=True, eq=False)
class Peer:
    """A tool: its packages, the files of its project, the commands of a first run and a rerun, and its table."""

    name: str
    pins: tuple[str, ...]
    files: dict[str, str]
    first: tuple[str, ...]
    again: tuple[str, ...]
    table: str
    remark: str = ""

    @property
    def label(self):
        return f"{self.name} ({' '.join(self.pins)})"

    @property
    def home(self):
        return HOMES / "+".join(self.pins)

    def install(self):
        """Create its virtual environment unless it exists."""
        if (self.home / "ready").exists():
            return
        HOMES.mkdir(exist_ok=True)
        pip = [self.home / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", *self.pins]
        for command in ([sys.executable, "-m", "venv", "--clear", self.home], pip):
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            if done.returncode:
                raise NotInstalled((done.stderr or done.stdout).strip().splitlines()[-1])
        (self.home / "ready").touch()

    def make_project(self, root):
        """Create its project beside the orders."""
        for name, text in self.files.items():
            file = root / self.name / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.format(**SPAN, landing=root / "landing", cores=os.cpu_count()))

    def call(self, root, program, *options):
        """Run one of its commands as a process."""
        command = [self.home / "bin" / program, *(option.format(**SPAN) for option in options)]
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | QUIET
        done = subprocess.run(command, cwd=root / self.name, env=environment, check=True, capture_output=True)
        return done.stdout

    def rows(self, root):
        """Return the number of rows in its table."""
        count = f"import duckdb; print(duckdb.connect('lake.db').sql('FROM {self.table}').shape[0])"
        return int(self.call(root, "python", "-c", count))


class Ours:
    """oncelake with the interface of a peer. Its project is created with the orders."""

    name = label = "oncelake"
    first = again = ("run", "--from", SPAN["start"], "--to", SPAN["end"])
    remark = ""

    def call(self, root, *options):
        """Run `oncelake` as a process."""
        subprocess.run([BIN / "oncelake", *options, "-p", root], check=True, capture_output=True)

    def rows(self, root):
        """Return the number of rows in the table."""
        return read_log("bronze.orders", str(root / "lake" / "bronze" / "orders")).rows()


PLAN = ("sqlmesh", "plan", "--auto-apply", "--no-prompts")
RUN_DAYS = ("dbt", "run", "--event-time-start", "{start}", "--event-time-end", "{end}")
PEERS = (
    Peer("SQLMesh", ("sqlmesh==0.236.4", "duckdb==1.5.6"), SQLMESH, PLAN, ("sqlmesh", "run"), "bronze.orders"),
    Peer(
        "dbt-core",
        # Later versions of dbt-core download a part that is not on the package index.
        ("dbt-core==1.11.16", "dbt-duckdb==1.11.1", "duckdb==1.5.6"),
        DBT,
        RUN_DAYS,
        RUN_DAYS,
        "orders",
        "; the same command reprocesses every day",
    ),
)


def measure():
    peers, figures = [], []
    for peer in PEERS:
        try:
            peer.install()
            peers.append(peer)
        except NotInstalled as problem:
            figures.append(figure(f"{DAYS} days by {peer.label}", f"not installed here: {problem}", "", "—"))
    with tempfile.TemporaryDirectory() as folder:
        first, again = _times(Path(folder), [Ours(), *peers])
    for tool in (Ours(), *peers):
        day = first[tool.name] / DAYS
        what = f"first run of {DAYS} days, whole process, per day: {tool.label}"
        figures.append(figure(what, round(day, 3), "s", "—", whole=first[tool.name]))
    for tool in (Ours(), *peers):
        what = f"rerun of {DAYS} days, whole process: {tool.label}{tool.remark}"
        figures.append(figure(what, round(again[tool.name], 3), "s", "—"))
    return figures


def _times(folder, tools):
    """Return the best times of a first run and of a rerun."""
    numbers, done = itertools.count(), {}

    def fresh():
        root = folder / f"round{next(numbers)}"
        root.mkdir()
        make_project(root, DAYS)
        for tool in tools:
            if isinstance(tool, Peer):
                tool.make_project(root)
        return root

    def first(tool, root):
        tool.call(root, *tool.first)
        done[tool] = root

    firsts = best_of(ROUNDS, fresh, **{tool.name: partial(first, tool) for tool in tools})
    for tool in tools:
        assert tool.rows(done[tool]) == DAYS * ORDERS, tool.name
    reruns = best_of(ROUNDS, **{tool.name: partial(tool.call, done[tool], *tool.again) for tool in tools})
    return firsts, reruns
