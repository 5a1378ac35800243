"""The medallion example as its README tells it: hours, days and months, a day that fails, an hour that comes late."""

import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import oncelake as once
from support.lakes import rows

EXAMPLE = Path(__file__).parents[2] / "examples" / "medallion"
# As if March were just over, whatever day it is.
SPAN = {"end": "2024-04-01", "now": datetime(2024, 4, 1, tzinfo=UTC)}
FIRST, WRONG, LAST = "[2024-03-29, 2024-03-30)", "[2024-03-30, 2024-03-31)", "[2024-03-31, 2024-04-01)"
FEBRUARY, MARCH = "[2024-02-01, 2024-03-01)", "[2024-03-01, 2024-04-01)"


def test_the_story_of_the_example_ends_with_the_tables_of_a_clean_run(tmp_path, spark):
    root = copied(tmp_path / "lived")
    project = once.open(root, spark=spark)
    land(root)
    a_wrong_day_fails_alone_and_blocks_its_month(project, root)
    mended_it_is_done_and_so_is_its_month(project, root)
    late_rows_are_taken_up_by_the_day_and_shown_by_the_month(project, root)
    assert same_as_clean(root, tmp_path / "clean", spark)


def a_wrong_day_fails_alone_and_blocks_its_month(project, root):
    report = project.run(**SPAN)
    assert outcomes(report) == [
        ("bronze", "[2024-03-29, 2024-04-01)", "committed"),
        ("silver", FIRST, "committed"),
        ("silver", WRONG, "failed"),
        ("silver", LAST, "committed"),
        ("gold", FEBRUARY, "committed"),
        ("gold", MARCH, "blocked"),
    ]
    (failed,) = [work for work in report.works if work.outcome == "failed"]
    assert "garden measured 115.0 °C at 2024-03-30 12:00:00" in failed.error
    assert days(root) == {"2024-03-29", "2024-03-31"}
    # Nor is half a month summed up when nothing is wrong in the run itself.
    assert outcomes(project.run("gold", **SPAN)) == [("gold", MARCH, "blocked")]
    assert months(root) == {}


def mended_it_is_done_and_so_is_its_month(project, root):
    land(root, "--fix")
    assert list(stale(project)) == ["bronze.readings"]
    project.restate("bronze", date="2024-03-30T12:00", now=SPAN["now"])
    assert outcomes(project.run(**SPAN)) == [("silver", WRONG, "committed"), ("gold", MARCH, "committed")]
    # The attic's first reading was sent twice: the second counts, but was not the coldest.
    assert months(root) == {
        "attic": ("2024-03-01", 9, 14.0, 19.5),
        "cellar": ("2024-03-01", 9, 9.0, 14.5),
        "garden": ("2024-03-01", 9, 6.0, 11.5),
    }
    assert stale(project) == {}


def late_rows_are_taken_up_by_the_day_and_shown_by_the_month(project, root):
    land(root, "--late")
    assert list(stale(project)) == ["bronze.readings"]
    project.restate("bronze", date="2024-03-29T15:00", now=SPAN["now"])
    assert stale(project) == {"silver.readings": [FIRST]}
    assert outcomes(project.run(**SPAN)) == [("silver", FIRST, "committed")]
    assert stale(project) == {"gold.months": [MARCH]}
    assert outcomes(project.run(**SPAN)) == []
    assert outcomes(project.run(stale=True, **SPAN)) == [("gold", MARCH, "committed")]
    assert stale(project) == {}
    assert months(root)["garden"] == ("2024-03-01", 10, 6.0, 13.0)


def same_as_clean(root, clean, spark):
    """Whether the tables are those of one run over everything that came in the end."""
    copied(clean)
    for step in ((), ("--fix",), ("--late",)):
        land(clean, *step)
    assert once.open(clean, spark=spark).run(**SPAN).outcome == "done"
    tables = ("bronze.readings", "silver.readings", "gold.months")
    return [rows(root, table) for table in tables] == [rows(clean, table) for table in tables]


def copied(root):
    return shutil.copytree(EXAMPLE, root, ignore=shutil.ignore_patterns("lake", "landing", "__pycache__"))


def land(root, *step):
    subprocess.run([sys.executable, str(root / "make_landing.py"), *step], check=True, capture_output=True)


def outcomes(report):
    """What came of everything that was to be done."""
    done = [work for work in report.works if work.outcome != "already_done"]
    return [(work.pipeline, work.slice, work.outcome) for work in done]


def stale(project):
    found = {standing.target: standing.stale for standing in project.status(now=SPAN["now"])}
    return {target: [str(interval) for interval, _ in parts] for target, parts in found.items() if parts}


def days(root):
    return {dict(row)["day"] for row in rows(root, "silver.readings")}


def months(root):
    found = [dict(row) for row in rows(root, "gold.months")]
    return {
        row["sensor"]: (row["month"], int(row["readings"]), float(row["coldest"]), float(row["warmest"]))
        for row in found
    }
