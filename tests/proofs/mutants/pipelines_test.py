"""The prover's mutants: it names every seeded bug by a case that shows it. A prover that cannot fail proves nothing."""

import json
import shutil
from datetime import datetime
from pathlib import Path

import pytest

import oncelake as once
from oncelake.proving.calls import compiler
from oncelake.proving.proof import Prover
from support import sabotage
from support.lakes import DAYS, make_project, write_table
from support.seeded import PIPELINES, TABLE, one_per_scenario
from support.seeded_changes import CHANGED_WORLD
from support.seeded_surroundings import SURROUNDINGS

pytestmark = pytest.mark.skipif(compiler() is None, reason="the recorder needs Linux and a C compiler")
SABOTAGE = Path(sabotage.__file__)
MUTANTS = {**PIPELINES, **CHANGED_WORLD, **SURROUNDINGS}


@pytest.fixture(scope="module")
def prover():
    """A prover of their own: what they break in its process must not be there when patterns are proven."""
    with Prover() as made:
        yield made


@pytest.fixture(autouse=True)
def mended():
    """A project breaks the product wherever it is loaded, here too."""
    yield
    sabotage.mend()


def land(root, mutant):
    """Days of orders whose sums depend on the order, whose regions tie, with a row at midnight and a region that goes."""
    for number, day in enumerate(DAYS[:2]):
        rows = [
            {
                "id": number * 100 + i,
                "amount": (1e16, 1.0, -1e16)[i % 3],
                "at": f"{day}T{i:02}:00:00Z",
                "region": "late" if i == 19 else f"r{i % 4}",
            }
            for i in range(20)
        ]
        if mutant.reads == TABLE:
            columns = {name: [row[name] for row in rows] for name in rows[0]}
            columns["at"] = [datetime.fromisoformat(at) for at in columns["at"]]
            write_table(root, "bronze.orders", columns)
            continue
        folder = root / "landing" / day
        folder.mkdir(parents=True)
        (folder / "orders.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_every_bug_finds_what_it_breaks(tmp_path):
    for number, mutant in enumerate(MUTANTS.values()):
        root = make_project(tmp_path / str(number), mutant.pipelines)
        shutil.copy(SABOTAGE, root)
        assert "orders" in once.Project(root).pipelines


@pytest.mark.parametrize("name", one_per_scenario(MUTANTS, most=3))
def test_a_bug_in_a_pipeline_or_in_the_product_is_named(tmp_path, prover, name):
    mutant = MUTANTS[name]
    root = make_project(tmp_path, mutant.pipelines)
    shutil.copy(SABOTAGE, root)
    land(root, mutant)
    verdict = prover.prove(root, "orders", start=DAYS[0], end=DAYS[2], scenarios=mutant.found_by)
    assert verdict.verdict == "violated"
    assert "silver.orders" in verdict.violation.story
    assert verdict.violation.case in verdict.reproduce
