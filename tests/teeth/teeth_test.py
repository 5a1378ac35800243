"""The prover's teeth: it names every seeded bug by a case that shows it. A prover that cannot fail proves nothing."""

import json
import shutil
from pathlib import Path

import pytest
from seeded import HEAD, PIPELINES, SCRIPTS

import oncelake as once
from lakes import DAYS, make_project
from oncelake.proving.calls import compiler
from oncelake.proving.proof import Prover

pytestmark = pytest.mark.skipif(compiler() is None, reason="the recorder needs Linux and a C compiler")
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def prover():
    with Prover() as made:
        yield made


@pytest.fixture(autouse=True)
def mended():
    """A project breaks the product wherever it is loaded, here too."""
    yield
    import sabotage

    sabotage.mend()


def land(root):
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
        folder = root / "landing" / day
        folder.mkdir(parents=True)
        (folder / "orders.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize("name", PIPELINES)
def test_a_bug_in_a_pipeline_or_in_the_product_is_named(tmp_path, prover, name):
    tooth = PIPELINES[name]
    root = make_project(tmp_path, tooth.pipelines)
    shutil.copy(HERE / "sabotage.py", root)
    land(root)
    verdict = prover.prove(root, "orders", start=DAYS[0], end=DAYS[2], scenarios=tooth.found_by)
    assert verdict.verdict == "violated"
    assert "silver.orders" in verdict.violation.story
    assert verdict.violation.case in verdict.reproduce


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_bug_in_a_script_is_named(tmp_path, spark, name):
    script = SCRIPTS[name]
    table, folders = tmp_path / "lake" / "orders", [str(tmp_path / "lake" / folder) for folder in script.folders]
    (tmp_path / "lake").mkdir()
    if script.filled:
        spark.range(5, 15).selectExpr("id", "id AS amount").write.format("delta").save(str(table))
    landing = tmp_path / "landing"
    landing.mkdir()
    (landing / "orders.json").write_text("".join(json.dumps({"id": i, "amount": i}) + "\n" for i in range(10)))
    (tmp_path / "job.py").write_text(HEAD + script.code)
    before = sorted(path for path in tmp_path.rglob("*"))
    arguments = [str(table), str(landing), *folders]
    verdict = once.prove_script(tmp_path / "job.py", [str(table), *folders], arguments, scenarios=script.found_by)
    assert verdict.verdict == "violated"
    assert str(table) in verdict.violation.story
    assert sorted(path for path in tmp_path.rglob("*")) == before
