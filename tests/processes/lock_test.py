"""The lock of a table, held and lost by real processes."""

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading

import pytest

from oncelake.storage.lock import Busy, holders, table_lock

TABLE = "silver.orders"
SCRIPT = """
import subprocess, sys
from oncelake.storage.lock import Busy, table_lock

lake, patience, java, when = sys.argv[1], float(sys.argv[2]), sys.argv[3], sys.argv[4]
waited = []

def say(*words):
    print(*words, flush=True)

def given_up():
    if not waited:
        say("waiting")
    waited.append(True)
    return False

def start_java():
    say("java", subprocess.Popen([java, "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).pid)

if when == "before":
    start_java()
try:
    with table_lock(lake, "silver.orders", patience, given_up):
        if when == "inside":
            start_java()
        say("held")
        if sys.stdin.readline() == "fail\\n":
            raise RuntimeError
except Busy as busy:
    say("busy", busy.holder)
except RuntimeError:
    say("failed")
else:
    say("released")
sys.stdin.readline()
"""


class Runner:
    """A process that takes the lock, tells what happens to it and does the next thing when it is told to."""

    def __init__(self, lake, lock_timeout=60, java="", when="never"):
        command = [sys.executable, "-c", SCRIPT, str(lake), str(lock_timeout), str(java), when]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)

    def says(self):
        ready, _, _ = select.select([self.process.stdout], [], [], 30)
        assert ready, "nothing was said in time"
        return self.process.stdout.readline().decode().split()

    def go_on(self, how="on"):
        self.process.stdin.write(f"{how}\n".encode())

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def start(tmp_path):
    started = []

    def start_runner(**options):
        started.append(Runner(tmp_path, **options))
        return started[-1]

    yield start_runner
    for runner in started:
        runner.kill()
        runner.process.stdin.close()
        runner.process.stdout.close()


@pytest.fixture
def java(tmp_path):
    """A real program named java that does nothing for a long while."""
    program = tmp_path / "java"
    shutil.copy(shutil.which("sleep"), program)
    return program


@pytest.fixture
def end():
    """End processes by number, those that are left at the end of the test too."""
    pids = []

    def end_process(pid):
        os.kill(pid, signal.SIGKILL)
        pids.remove(pid)

    end_process.later = pids.append
    yield end_process
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def hold(lake, table=TABLE, lock_timeout=0.0, given_up=lambda: False):
    return table_lock(str(lake), table, lock_timeout, given_up)


def taken(lake, lock_timeout=0.0):
    with hold(lake, lock_timeout=lock_timeout):
        return True


def lock_file(lake):
    return lake / "_oncelake" / "locks" / f"{TABLE}.lock"


def test_a_second_process_waits_until_the_first_is_through(start):
    first = start()
    assert first.says() == ["held"]
    second = start()
    assert second.says() == ["waiting"]
    first.go_on()
    assert first.says() == ["released"]
    assert second.says() == ["held"]


def test_patience_that_ran_out_says_who_holds_the_lock(start, tmp_path):
    first = start()
    assert first.says() == ["held"]
    with pytest.raises(Busy) as caught, hold(tmp_path, lock_timeout=0.05):
        pass
    assert str(first.process.pid) in caught.value.holder.split()
    assert socket.gethostname() in caught.value.holder.split()


def test_waiting_ends_when_it_is_pointless(start, tmp_path):
    assert start().says() == ["held"]
    with pytest.raises(Busy), hold(tmp_path, lock_timeout=600, given_up=lambda: True):
        pass


def test_the_lock_of_a_killed_process_is_free(start, tmp_path):
    first = start()
    assert first.says() == ["held"]
    first.kill()
    assert taken(tmp_path)


def test_one_who_waits_gets_the_lock_of_a_killed_process(start):
    first = start()
    assert first.says() == ["held"]
    second = start()
    assert second.says() == ["waiting"]
    first.kill()
    assert second.says() == ["held"]


def test_the_jvm_of_a_killed_process_is_waited_for(start, java, end, tmp_path):
    first = start(java=java, when="before")
    jvm = int(first.says()[1])
    end.later(jvm)
    assert first.says() == ["held"]
    first.kill()
    with pytest.raises(Busy), hold(tmp_path, lock_timeout=0.05):
        pass
    second = start()
    assert second.says() == ["waiting"]
    end(jvm)
    assert second.says() == ["held"]


def test_the_jvm_of_a_process_that_failed_and_died_is_waited_for(start, java, end, tmp_path):
    first = start(java=java, when="before")
    end.later(int(first.says()[1]))
    assert first.says() == ["held"]
    first.go_on("fail")
    assert first.says() == ["failed"]
    first.kill()
    with pytest.raises(Busy), hold(tmp_path):
        pass


def test_the_jvm_of_a_process_that_let_go_in_order_is_not_waited_for(start, java, end, tmp_path):
    first = start(java=java, when="before")
    end.later(int(first.says()[1]))
    assert first.says() == ["held"]
    first.go_on()
    assert first.says() == ["released"]
    first.kill()
    assert taken(tmp_path)


@pytest.mark.parametrize("changed", [{"host": "elsewhere"}, {"jvms": "another start"}, {"jvms": []}])
def test_a_note_that_means_no_process_of_ours_is_not_waited_for(start, java, end, tmp_path, changed):
    first = start(java=java, when="before")
    end.later(int(first.says()[1]))
    assert first.says() == ["held"]
    first.kill()
    note = json.loads(lock_file(tmp_path).read_text())
    if changed.get("jvms"):
        changed = {"jvms": [[pid, begun + 1] for pid, begun in note["jvms"]]}
    lock_file(tmp_path).write_text(json.dumps({**note, **changed}))
    assert taken(tmp_path)


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "no note at all", "\0\0"])
def test_a_note_that_cannot_be_read_stops_nobody(tmp_path, content):
    assert taken(tmp_path)
    lock_file(tmp_path).write_text(content)
    assert taken(tmp_path)


def test_a_failure_lets_go_of_the_lock(tmp_path):
    with pytest.raises(RuntimeError), hold(tmp_path):
        raise RuntimeError
    assert taken(tmp_path)


def test_nothing_is_noted_after_an_orderly_end(tmp_path):
    with hold(tmp_path):
        assert json.loads(lock_file(tmp_path).read_text())["pid"] == os.getpid()
    assert lock_file(tmp_path).read_text() == ""


def test_two_threads_of_one_process_do_not_hold_it_at_once(tmp_path):
    found = []

    def second():
        try:
            found.append(taken(tmp_path))
        except Busy:
            found.append("busy")

    with hold(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
    assert found == ["busy"]


def test_tables_are_locked_one_by_one(tmp_path):
    with hold(tmp_path, "one"), hold(tmp_path, "two"):
        assert taken(tmp_path)


@pytest.mark.parametrize("name", ["größe.日本", "it's", "a b", "../../out", "a/b"])
def test_a_lock_lies_with_the_others_whatever_the_tables_name(tmp_path, name):
    with hold(tmp_path, name):
        assert len(list((tmp_path / "_oncelake" / "locks").iterdir())) == 1


def test_a_lake_may_be_a_file_uri(tmp_path):
    with hold(f"file://{tmp_path}"), pytest.raises(Busy), hold(tmp_path):
        pass


def test_a_store_that_does_not_answer_keeps_nobody_from_working(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = {"ENDPOINT": "http://127.0.0.1:9", "ALLOW_HTTP": "true", "ACCESS_KEY_ID": "-", "SECRET_ACCESS_KEY": "-"}
    for name, value in here.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with pytest.warns(UserWarning, match="could not acquire a lease on silver.orders"), hold("s3a://bucket/lake"):
        assert list(tmp_path.iterdir()) == []
    assert holders("s3a://bucket/lake") == {}
