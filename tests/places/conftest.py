"""Tests of one place. `processes/places_test.py` runs them in a process of that place, beside the behaviours."""

from support.places import PLACE

collect_ignore = [] if PLACE == "cluster" else ["cluster_test.py"]
collect_ignore += [] if PLACE == "connect" else ["connect_test.py"]
