"""The prover's mutants in scripts: bugs of hand-written jobs, without a line of oncelake, each named by a case that shows it."""

import json

import pytest

import oncelake as once
from oncelake.proving.calls import compiler
from support.seeded import HEAD, SCRIPTS, one_per_scenario

pytestmark = pytest.mark.skipif(compiler() is None, reason="the recorder needs Linux and a C compiler")


@pytest.mark.parametrize("name", one_per_scenario(SCRIPTS, most=1))
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
