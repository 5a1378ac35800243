"""A report from Python has the fields of the document."""

from datetime import UTC, datetime

import pytest

from oncelake.model.intervals import Interval
from oncelake.model.markers import marker
from oncelake.model.slices import Whole
from oncelake.model.work import Outcome, Planned, Report, Rows, Work

DAY = Interval(datetime(2024, 3, 15, tzinfo=UTC), datetime(2024, 3, 16, tzinfo=UTC))


def work(slice_=DAY):
    return Work("orders", "silver.orders", slice_, 1, marker("orders", "silver.orders", slice_, 1))


@pytest.mark.parametrize("slice_", [DAY, Whole()], ids=str)
def test_outcomes_and_plans_have_the_fields_of_their_documents(slice_):
    for record in (Outcome(work(slice_), "committed", 3, Rows(10, 9, 9, 0), 1.2), Planned(work(slice_), "run", "why")):
        for name, value in record.document().items():
            found = getattr(record, name)
            assert found == value or {key: found[key] for key in value} == value


@pytest.mark.parametrize(
    ("outcomes", "outcome", "exit_code"),
    [
        ([], "done", 0),
        (["committed", "already_done"], "done", 0),
        (["committed", "busy"], "busy", 4),
        (["busy", "blocked", "failed", "committed"], "failed", 1),
    ],
)
def test_a_run_is_as_bad_as_its_worst_work(outcomes, outcome, exit_code):
    report = Report("run", tuple(Outcome(work(), one) for one in outcomes))
    assert (report.outcome, report.exit_code) == (outcome, exit_code)
    assert Report("run", report.works, interrupted=True).exit_code == 130
