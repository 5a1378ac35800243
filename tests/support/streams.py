"""Streams that tests run: orders of a topic or of a table, into every pattern that takes batches."""

import json
from dataclasses import dataclass, field
from typing import Any

SCHEMA = "id bigint, customer bigint, cents bigint, at bigint, day string"
# The columns of a table that is read instead of a topic, and of the rows that every target gets.
COLUMNS = ["id", "customer", "cents", "at", "day"]


def order(number):
    """Return an order: of one of three customers, two on a day, later than all orders before it."""
    return {"id": number, "customer": number % 3, "cents": number, "at": number, "day": f"2024-03-{10 + number // 2}"}


def orders(*numbers):
    """Return orders as messages."""
    return [json.dumps(order(number)) for number in numbers]


@dataclass(frozen=True)
class StreamTarget:
    """A target of a stream: its pattern, and the rows that it has after some orders, as texts of one column."""

    pattern: str
    options: dict[str, Any] = field(default_factory=dict)
    # What the function does to its rows, and what is compared.
    rows: str = "rows"
    compared: str = "id"

    @property
    def source(self):
        """Return the declaration as the text of a project's file."""
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"once.{self.pattern}({{name!r}}{options})"

    def expected(self, numbers):
        """Return what is compared, after orders of these numbers."""
        if self.pattern == "merge":
            return sorted({number % 3: number for number in sorted(numbers)}.values())
        if self.pattern == "aggregate":
            customers = {number % 3 for number in numbers}
            return sorted(sum(n for n in numbers if n % 3 == customer) for customer in customers)
        return sorted(numbers)


_BY_CUSTOMER = 'rows.groupBy("customer").agg(F.sum("cents").alias("cents"))'
# A table that is read by its change feed has columns of the feed, which no target needs.
TARGETS = {
    "append": StreamTarget("append"),
    "merge": StreamTarget("merge", {"keys": "customer", "latest_by": "at"}),
    "scd2": StreamTarget("scd2", {"keys": "customer", "latest_by": "at"}),
    "adding": StreamTarget("aggregate", {"keys": "customer", "add": "cents"}, _BY_CUSTOMER, "cents"),
    "state": StreamTarget("aggregate", {"keys": "customer"}, _BY_CUSTOMER, "cents"),
    "partitions": StreamTarget("replace_partitions", {"by": "day"}),
}
SHAPES = {name: (name,) for name in TARGETS} | {"three": ("append", "merge", "adding")}

PROJECT = """
import oncelake as once
from pyspark.sql import functions as F

@once.pipeline(reads={reads}, writes=[{writes}])
def orders(messages):
    rows = messages.select({columns})
    return {{{frames}}}
"""


def kafka_source(kafka, topic, most=2):
    """Return the declaration of a topic of orders."""
    return (
        f"once.kafka({topic!r}, servers={kafka.servers!r}, value='json', schema={SCHEMA!r}, max_messages={most})",
        '"value.*"',
    )


def changes_source(name="orders_in", feed=False):
    """Return the declaration of a table of orders."""
    return f"once.changes({name!r}, feed={feed}, max_files=1)", repr(COLUMNS)[1:-1]


def write_project(root, reads, shape):
    """Write a project with a stream; its targets are named like those of the shape."""
    source, columns = reads
    names = SHAPES[shape]
    writes = ", ".join(TARGETS[name].source.format(name=name) for name in names)
    frames = ", ".join(f"{name!r}: {TARGETS[name].rows}" for name in names)
    root.mkdir(parents=True, exist_ok=True)
    (root / "oncelake.yaml").write_text("lake: lake\npipelines: pipelines.py\n")
    (root / "pipelines.py").write_text(PROJECT.format(reads=source, writes=writes, columns=columns, frames=frames))
    return root


def contents(spark, root, shape):
    """Return what is compared of each target."""
    frames = {name: spark.read.format("delta").load(str(root / "lake" / name)) for name in SHAPES[shape]}
    return {name: sorted(row[0] for row in frames[name].select(TARGETS[name].compared).collect()) for name in frames}


def expected(shape, numbers):
    """Return what the targets must have after orders of these numbers."""
    return {name: TARGETS[name].expected(list(numbers)) for name in SHAPES[shape]}
