"""The patterns in the shapes that every behaviour and every proof is run over, each with what it leaves in a table."""

import hashlib
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

import oncelake as once

TARGET = "silver.orders"
DELETED = 102  # the order that deletes its customer, where a variant deletes


def every_id(ids: list[int]) -> list[int]:
    return ids


def last_day(ids: list[int]) -> list[int]:
    return ids[-3:]


def latest_of_each_customer(ids: list[int]) -> list[int]:
    return [number for number in {number % 100: number for number in ids}.values() if number != DELETED]


def every_version(ids: list[int]) -> list[int]:
    return [number for number in ids if number != DELETED]


def every_group(ids: list[int]) -> list[int]:
    return list({number % 100 for number in ids})


@dataclass(frozen=True)
class Variant:
    """A pattern in one shape. `leaves` makes the ids in the table from the ids of the days that were run, in order."""

    name: str
    pattern: str
    options: Mapping[str, Any] = field(default_factory=dict)
    leaves: Callable[[list[int]], list[int]] = every_id
    sets_slice: bool = False  # neighbouring days are one commit
    reloads: bool = False  # the newest day is the whole table
    keyed: bool = False
    prepares: bool = False  # writes rows beside the target before its commit
    adds: bool = False  # sums are added to groups
    more_of_the_same: bool = False  # another shape of a pattern that is in the list already

    @property
    def declared(self) -> Any:
        """Return the pattern as a pipeline declares it."""
        return getattr(once, self.pattern)(TARGET, **self.options)

    @property
    def source(self) -> str:
        """Return the same declaration as the text of a project's file."""
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"once.{self.pattern}({TARGET!r}{options})"


_LATEST = {"keys": "customer", "latest_by": "ordered_at", "delete_when": f"id = {DELETED}"}
_BY_DAY = {"time": "day", "partition_by": "day"}
_ROW_BY_DAY = {"keys": ["id", "day"], "latest_by": "ordered_at", "partition_by": "day"}
_ALL = (
    Variant("replace_interval", "replace_interval", {"time": "ordered_at"}, sets_slice=True),
    Variant("replace_interval, partitioned", "replace_interval", _BY_DAY, sets_slice=True, more_of_the_same=True),
    Variant("replace_partitions", "replace_partitions", {"by": "day"}, sets_slice=True),
    Variant("overwrite", "overwrite", leaves=last_day, reloads=True),
    Variant("append", "append"),
    Variant("merge", "merge", _LATEST, latest_of_each_customer, keyed=True, prepares=True),
    Variant("merge, partitioned", "merge", _ROW_BY_DAY, keyed=True, more_of_the_same=True),
    Variant("scd2", "scd2", _LATEST, every_version, keyed=True, prepares=True),
    Variant("aggregate", "aggregate", {"keys": "id", "any_order": True}, keyed=True, more_of_the_same=True),
    Variant("aggregate, adding", "aggregate", {"keys": "id", "add": "cents"}, every_group, keyed=True, adds=True),
)
VARIANTS = {variant.name: variant for variant in _ALL}


def variants(without: str = "") -> list[Any]:
    """Return the variants as parameters of a test, further shapes of one marked as long."""
    return [
        pytest.param(each, marks=[pytest.mark.long] if each.more_of_the_same else [], id=each.name)
        for each in VARIANTS.values()
        if each.name != without
    ]


def some_variants(plain: int, keyed: int, *names: str, without: str = "") -> list[Any]:
    """Return the variants as parameters of a test, all but a sample of plain and of keyed ones marked as long."""
    offered = [each for each in VARIANTS.values() if each.name != without]
    chosen = set()
    for count, of_keyed in ((plain, False), (keyed, True)):
        group = [each.name for each in offered if each.keyed == of_keyed and not each.more_of_the_same]
        chosen |= sample(group, count, *names)
    marked = [(each, [] if each.name in chosen else [pytest.mark.long]) for each in offered]
    return [pytest.param(each, marks=marks, id=each.name) for each, marks in marked]


def seed() -> str:
    """Return what decides which samples are taken: the commit, so that successive commits try different ones."""
    given = os.environ.get("ONCELAKE_TEST_SEED")
    if given:
        return given
    root = Path(__file__).parents[2]
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip()


SEED = seed()


def number_of(*names: str) -> int:
    """Return a number made of the seed and some names: the same in every process of one run."""
    return int.from_bytes(hashlib.sha256("/".join((SEED, *names)).encode()).digest()[:4])


def sample(things: Sequence[str], count: int, *names: str) -> set[str]:
    """Return so many of the things, chosen by the seed."""
    return set(Random(number_of(*names)).sample(things, min(count, len(things))))


def sampled(things: Sequence[str], count: int, *names: str, always: Sequence[str] = ()) -> list[Any]:
    """Return everything as parameters of a test, all but a sample and what is always tried marked as long."""
    chosen = {*always, *sample([each for each in things if each not in always], count, *names)}
    return [pytest.param(each, marks=[] if each in chosen else [pytest.mark.long], id=each) for each in things]


def sampled_with(variant: Variant, things: Sequence[str], count: int, always: Sequence[str] = ()) -> list[Any]:
    """Return a variant with everything as parameters, all but a sample and what is always tried marked as long."""
    chosen = {*always, *sample([each for each in things if each not in always], count, variant.name)}
    tried = set() if variant.more_of_the_same else chosen
    return [
        pytest.param(variant, each, marks=[] if each in tried else [pytest.mark.long], id=f"{variant.name}, {each}")
        for each in things
    ]
