"""A lease has one holder, also when a runner was suspended between looking and taking."""

import subprocess
import sys
import uuid
from itertools import permutations
from urllib.request import Request, urlopen

import pytest
from obstore.store import MemoryStore

from oncelake.storage.lease import LENGTH, LeaseFiles, acquire, lease_files, renewing

ME = {"pid": 1, "host": "one", "since": "now"}


@pytest.fixture
def bucket(monkeypatch):
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    address, name = "http://{}:{}".format(*server.get_host_and_port()), f"lake-{uuid.uuid4()}"
    settings = {"ENDPOINT_URL": address, "ALLOW_HTTP": "true", "REGION": "us-east-1"}
    for key, value in {**settings, "ACCESS_KEY_ID": "me", "SECRET_ACCESS_KEY": "secret"}.items():
        monkeypatch.setenv(f"AWS_{key}", value)
    urlopen(Request(f"{address}/{name}", method="PUT")).close()
    yield f"s3a://{name}/lake"
    server.stop()


@pytest.fixture(params=["memory", "s3", "folder"])
def leases(request, tmp_path):
    if request.param == "memory":
        return LeaseFiles(MemoryStore(), "t")
    return lease_files(request.getfixturevalue("bucket") if request.param == "s3" else f"file://{tmp_path}", "t")


def test_a_runner_that_was_suspended_does_not_take_a_number_that_was_deleted(leases):
    assert leases.take(1, ME)
    seen, _ = leases.newest()
    assert leases.take(2, ME)
    assert leases.take(3, ME)
    assert not leases.take(seen + 1, {"pid": "suspended"})
    number, holder = leases.newest()
    assert (number, holder["pid"]) == (3, 1)
    assert leases.take(4, ME)


def test_the_suspended_runner_waits_for_the_newer_lease(leases):
    leases.take(1, ME)
    leases.end(1)
    slept = []
    look = leases.newest

    class Suspended(LeaseFiles):
        """A runner that sleeps, once, between the look and the create, while others take two leases."""

        def newest(self):
            found = look()
            if not slept:
                slept.append(found)
                leases.take(2, ME)
                leases.take(3, ME)
            return found

    taken, holder = acquire(Suspended(leases.store, leases.folder), {"pid": "suspended"}, 0, lambda: False)
    assert slept
    assert (taken, holder["pid"]) == (None, 1)
    leases.end(3)
    assert acquire(leases, {"pid": "next"}, 0, lambda: False)[0] == 4


def test_a_lease_that_lapsed_is_not_revived_by_its_former_holder(leases):
    leases.take(1, ME)
    leases.take(2, {"pid": "next"})
    leases.renew(1, ME, LENGTH)
    assert leases.newest()[1]["pid"] == "next"
    assert leases.take(3, ME)


def test_a_runner_that_was_suspended_past_the_end_of_its_lease_knows_it(leases):
    number, _ = acquire(leases, ME, 0, lambda: False)
    with renewing(leases, number, ME, length=0.3) as is_ours:
        assert is_ours()
        leases.take(number + 1, {"pid": "next"})
        assert not is_ours()
        until = leases.newest()[1]["until"]
        leases.take(number + 2, {"pid": "after"})
        assert not is_ours()
    # It neither renewed nor ended what it had no longer.
    newest, holder = leases.newest()
    assert (newest, holder["pid"], leases.is_newest(newest)) == (number + 2, "after", True)
    assert holder["until"] >= until


def test_runners_that_stop_between_the_look_and_the_taking_never_hold_one_number():
    for order in set(permutations("AABBCC")):
        leases, seen, held = LeaseFiles(MemoryStore(), "t"), {}, []
        for name in order:
            if name not in seen:
                seen[name] = leases.newest()[0]
            elif leases.take(seen[name] + 1, {"pid": name}):
                held.append(seen[name] + 1)
                leases.end(held[-1])
        assert len(set(held)) == len(held), order
        assert leases.newest()[0] == max(held), order


def test_numbers_go_on_beyond_eight_digits(leases):
    leases.take(99_999_999, ME)
    leases.end(99_999_999)
    assert acquire(leases, ME, 0, lambda: False)[0] == 100_000_000
    assert leases.newest()[0] == 100_000_000


NO_LIBRARY = """
import sys
sys.modules["obstore"] = None  # as if it were not installed
from oncelake.storage import lease

print(lease.lease_problem(sys.argv[1]))
print(lease.lease_files(sys.argv[1], "t") if "://" in sys.argv[1] else None)
"""


@pytest.mark.parametrize(("lake", "warned"), [("s3a://bucket/lake", True), ("lake", False)])
def test_without_the_library_a_run_can_warn(lake, warned):
    done = subprocess.run([sys.executable, "-c", NO_LIBRARY, lake], capture_output=True, text=True, check=True)
    problem, files = done.stdout.splitlines()
    assert ("oncelake[object-store]" in problem) == warned
    assert (problem == "None") != warned
    assert files == "None"
