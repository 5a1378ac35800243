"""One warm prover for the proofs of a test process: starting one costs as much as several proofs."""

import pytest

from oncelake.proving.proof import Prover


@pytest.fixture(scope="session")
def prover():
    with Prover() as made:
        yield made
