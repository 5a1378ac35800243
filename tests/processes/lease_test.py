"""Leases where no kernel keeps a lock: taken by one, given back, run out, renewed. On a folder, and on an S3 of our own."""

import subprocess
import sys
import threading
import uuid
from urllib.request import Request, urlopen

import pytest

from oncelake.storage.lease import LeaseFiles, acquire, lease_files, leases, renewing

ME, OTHER = {"pid": 1, "host": "one", "since": "now"}, {"pid": 2, "host": "two", "since": "now"}
RUNNER = """
import sys
from oncelake.storage.lease import acquire, lease_files

number, _ = acquire(lease_files(sys.argv[1], "t"), {"pid": sys.argv[2]}, 0, lambda: False)
print(number)
"""


@pytest.fixture(scope="module")
def s3():
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def folder(tmp_path):
    return f"file://{tmp_path}"


@pytest.fixture(params=["folder", "s3"])
def lake(request, monkeypatch):
    if request.param == "folder":
        return request.getfixturevalue("folder")
    address, bucket = request.getfixturevalue("s3"), f"lake-{uuid.uuid4()}"
    told = {"ENDPOINT_URL": address, "ALLOW_HTTP": "true", "REGION": "us-east-1"}
    for name, value in {**told, "ACCESS_KEY_ID": "me", "SECRET_ACCESS_KEY": "secret"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    urlopen(Request(f"{address}/{bucket}", method="PUT")).close()
    return f"s3a://{bucket}/lake"


def no():
    return False


def test_a_lease_is_taken_by_one_and_given_back(lake):
    turns = lease_files(lake, "silver.orders")
    number, _ = acquire(turns, ME, 0, no)
    with renewing(turns, number, ME):
        assert leases(lake)["silver.orders"]["host"] == "one"
        taken, holder = acquire(turns, OTHER, 0, no)
        assert (taken, holder["host"]) == (None, "one")
    assert leases(lake) == {}
    assert acquire(turns, OTHER, 0, no)[0] == number + 1


def test_waiting_ends_when_it_is_pointless(lake):
    turns = lease_files(lake, "t")
    acquire(turns, ME, 0, no)
    asked = []
    assert acquire(turns, OTHER, 600, lambda: bool(asked.append(1)) or len(asked) > 2)[0] is None
    assert len(asked) == 3


def test_a_lease_of_somebody_dead_runs_out_and_one_in_use_is_renewed(lake):
    turns = lease_files(lake, "t")
    number, _ = acquire(turns, ME, 0, no)
    turns.renew(number, ME, 0.2)
    assert acquire(turns, OTHER, 60, no)[0] == number + 1
    with renewing(turns, number + 1, OTHER, length=0.3):
        until = turns.newest()[1]["until"]
        while turns.newest()[1]["until"] == until:
            pass


def test_of_many_at_once_one_takes_a_turn(lake):
    turns = lease_files(lake, "t")
    start, taken = threading.Barrier(8), []

    def take(me):
        start.wait()
        taken.append(turns.take(1, {"pid": me}))

    threads = [threading.Thread(target=take, args=(me,)) for me in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken) == [False] * 7 + [True]


def test_of_many_processes_one_takes_a_turn(lake):
    command = [sys.executable, "-c", RUNNER, lake]
    runners = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True) for n in range(4)]
    answers = sorted(runner.communicate()[0].strip() for runner in runners)
    assert answers == ["1", "None", "None", "None"]


def test_a_turn_that_is_being_written_is_nobodys_yet(tmp_path, folder):
    turns = lease_files(folder, "t")
    assert isinstance(turns, LeaseFiles)
    files = tmp_path / turns.folder
    files.mkdir(parents=True)
    (files / "00000007.json").write_text("{")
    assert turns.newest() == (7, {})
    assert acquire(turns, ME, 0, no)[0] == 8
    assert sorted(file.name for file in files.iterdir()) == ["00000008.json"]
