"""The ledger of streams: batches are recorded together, a failure at once."""

from types import SimpleNamespace

import pytest

from oncelake.delta.tables import Lake
from oncelake.listeners import ledger as module
from oncelake.listeners.ledger import DeltaLedger
from oncelake.model.events import RunEnded, WorkEnded, WorkStarted
from oncelake.model.markers import marker
from oncelake.model.slices import Batch
from oncelake.model.streams import StreamId
from oncelake.model.work import COMMITTED, FAILED, Outcome, Rows, Work


@pytest.fixture
def ledger(tmp_path):
    return DeltaLedger(Lake(str(tmp_path), str(tmp_path)), pytest.fail)


def batch(number, outcome=COMMITTED):
    slice_ = Batch(StreamId.of("payments", 1).text, number)
    work = Work("payments", "bronze", slice_, 1, marker("payments", "bronze", slice_, 1))
    return WorkStarted("r", (work,)), WorkEnded("r", (Outcome(work, outcome, number, Rows(1, 1, 0, 0)),))


def tell(ledger, *events):
    for event in events:
        ledger.on(event)
    return [(entry["event"], entry["slice"], entry["outcome"]) for entry in ledger.entries()]


def test_the_batches_of_a_run_are_written_together_at_its_end(ledger):
    assert tell(ledger, *batch(0), *batch(1)) == []
    found = tell(ledger, RunEnded(SimpleNamespace()))
    assert found == [("ended", "batch 0", COMMITTED), ("ended", "batch 1", COMMITTED)]
    assert len(ledger.failures()) == 0
    assert tell(ledger, RunEnded(SimpleNamespace())) == found


def test_a_batch_that_fails_is_written_at_once_with_those_before_it(ledger):
    found = tell(ledger, *batch(0), *batch(1, FAILED))
    assert found == [("ended", "batch 0", COMMITTED), ("ended", "batch 1", FAILED)]


def test_a_stream_that_does_not_end_is_written_after_a_while(ledger, monkeypatch):
    monkeypatch.setattr(module, "_STREAM_PERIOD", 0.0)
    assert tell(ledger, *batch(0)) == [("ended", "batch 0", COMMITTED)]
