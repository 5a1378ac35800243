"""The behaviours of every pattern hold at every place, unchanged: on a cluster, on a Spark Connect server and on S3.

A place is a process of its own: pyspark is either classic or the client of a server.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.variants import SEED, VARIANTS, sample, sampled

TESTS = Path(__file__).parents[1]
PLACES = ("cluster", "connect", "s3")
SAMPLE = "test_twice_is_once or (test_stopped_at_any_point_is_once and written)"


def behave(place, *options):
    env = {**os.environ, "ONCELAKE_TEST_PLACE": place, "ONCELAKE_TEST_SEED": SEED}
    # The tests of the place first: they need no table of the others, and one of them restarts the server.
    files = [str(TESTS / "proofs" / "behaviours_test.py"), str(TESTS / "places")]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", *options, *files]
    done = subprocess.run(command, env=env, cwd=TESTS.parent, capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


# A place takes up to three minutes: `make test` tries one of them, another with other commits.
@pytest.mark.parametrize("place", sampled(PLACES, 1, "place"))
def test_a_sample_of_the_behaviours_holds(place):
    (name,) = sample([each.name for each in VARIANTS.values() if not each.more_of_the_same], 1, place)
    # An expression of pytest takes no comma; the other shapes of the same pattern are long.
    behave(place, "-k", f"({SAMPLE}) and [{name.partition(',')[0]} or places")


@pytest.mark.long
@pytest.mark.parametrize("place", PLACES)
def test_all_behaviours_hold(place):
    behave(place, "-m", "")
