"""The recorder: every call that changes a file is seen, numbered and can be rebuilt, failed, lost, stopped or killed at."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from oncelake.errors import ProverUnavailable
from oncelake.proving.calls import ERRORS, FAIL, KILL, LOSE, PYTHON, STOP, Act, Controls, compiler, read_journal
from oncelake.proving.images import Folders, build_images, check_complete, distinct_images, restore_tree, scan_tree

pytestmark = pytest.mark.skipif(compiler() is None, reason="the recorder needs Linux and a C compiler")

EVERY_KIND = """
import os, sys
os.chdir(sys.argv[1])
os.mkdir("a")
with open("a/one", "wb", buffering=0) as file:
    file.write(b"first ")
    file.write(b"second")
    os.pwrite(file.fileno(), b"FIRST", 0)
    os.writev(file.fileno(), [b" and", b" last"])
    file.truncate(8)
os.rename("a/one", "a/two")
os.link("a/two", "a/three")
os.symlink("two", "a/link")
os.makedirs("b/c")
with open("b/c/deep", "w") as file:
    file.write("x" * 100)
os.rename("b", "moved")
with open("a/two", "r+b", buffering=0) as source, open("a/copy", "wb", buffering=0) as copy:
    os.copy_file_range(source.fileno(), copy.fileno(), 5)
with open("a/three", "w") as file:
    file.write("new")
os.unlink("a/copy")
os.makedirs("gone/below")
os.removedirs("gone/below")
descriptor = os.open("moved", os.O_RDONLY)
os.mkdir("inside", dir_fd=descriptor)
os.close(descriptor)
print("ended")
"""


class Watched:
    """A folder, and programs that are watched while they change it."""

    def __init__(self, tmp_path):
        self.folder = tmp_path / "lake"
        self.folder.mkdir()
        self.controls = Controls(tmp_path / "controls")
        self.controls.watch([str(self.folder)])
        self.journal = tmp_path / "journal"
        self.folders = Folders((str(self.folder),), (self.folder,))
        self.kept = tmp_path / "kept"

    def start(self, program, act=None):
        with self.controls.watching(self.journal, act or Act()):
            command = [sys.executable, "-c", program, str(self.folder)]
            process = subprocess.Popen(
                command, env={**os.environ, **self.controls.environment}, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            self.controls.drive(process.pid)
            yield process

    def run(self, program, act=None):
        for process in self.start(program, act):
            out, err = process.communicate(timeout=60)
        return process.returncode, out.decode().strip(), err.decode()

    @property
    def calls(self):
        return read_journal(self.journal)


@pytest.fixture
def watched(tmp_path):
    made = Watched(tmp_path.resolve())
    yield made
    made.controls.close()


def test_every_kind_of_call_is_recorded_in_order_and_rebuilt_to_the_byte(watched):
    before = scan_tree(watched.folders, watched.kept)
    code, out, err = watched.run(EVERY_KIND)
    assert (code, out) == (0, "ended"), err
    found = build_images(before, watched.calls, watched.journal, watched.folders)
    check_complete(found[-1].tree, watched.folders)
    assert [call.number for call in watched.calls] == list(range(1, len(found)))
    assert {call.kind for call in watched.calls} == {
        "create",
        "write",
        "truncate",
        "mkdir",
        "rename",
        "link",
        "symlink",
        "unlink",
        "rmdir",
    }
    assert found[-1].tree["0/a/link"].target == "two"
    assert [found[-1].tree[f"0/a/{name}"].content() for name in ("two", "three")] == [b"new", b"new"]


def test_an_image_put_on_disk_is_what_a_kill_there_leaves(tmp_path, watched):
    before = scan_tree(watched.folders, watched.kept)
    watched.run(EVERY_KIND)
    found = build_images(before, watched.calls, watched.journal, watched.folders)
    for number in range(1, len(found), 3):
        restore_tree(found[0].tree, watched.folders)
        watched.journal.unlink()
        code, _, _ = watched.run(EVERY_KIND, Act(number, KILL, PYTHON))
        assert code == -signal.SIGKILL
        assert watched.controls.acted
        left = scan_tree(watched.folders, tmp_path / f"left{number}")
        image = found[number - 1].tree
        assert sorted(left) == sorted(image)
        assert {p: e.content() for p, e in left.items() if e.kind == "file"} == {
            p: e.content() for p, e in image.items() if e.kind == "file"
        }


def test_states_that_are_the_same_are_one(watched):
    program = "import os, sys\nos.chdir(sys.argv[1])\nfor _ in range(3):\n os.mkdir('x')\n os.rmdir('x')"
    watched.run(program)
    found = build_images({}, watched.calls, watched.journal, watched.folders)
    assert (len(found), len(distinct_images(found))) == (7, 2)


@pytest.mark.parametrize("name", ERRORS)
def test_a_call_can_be_made_to_fail(watched, name):
    code, _, err = watched.run(EVERY_KIND, Act(2, FAIL, error=ERRORS[name]))
    assert code == 1
    assert f"[Errno {ERRORS[name]}]" in err
    assert sorted(path.name for path in watched.folder.rglob("*")) == ["a"]


def test_a_full_disk_stays_full_but_lets_things_be_removed(watched):
    program = """
import os, sys
os.chdir(sys.argv[1])
open("a", "w").close()
for name in "bc":
    try:
        open(name, "w").close()
    except OSError as error:
        print(error.errno)
os.unlink("a")
"""
    code, out, _ = watched.run(program, Act(2, FAIL, error=ERRORS["ENOSPC"], onwards=True))
    assert (code, out.split()) == (0, [str(ERRORS["ENOSPC"])] * 2)
    assert list(watched.folder.iterdir()) == []


def test_an_answer_can_be_lost_after_the_call_was_done(watched):
    program = "import os, sys\nos.mkdir(sys.argv[1] + '/made')"
    code, _, err = watched.run(program, Act(1, LOSE, error=ERRORS["EIO"]))
    assert code == 1
    assert "[Errno 5]" in err
    assert (watched.folder / "made").is_dir()


def test_a_writer_can_be_stopped_before_a_call_and_woken(watched):
    program = "import os, sys\nos.mkdir(sys.argv[1] + '/made')"
    for process in watched.start(program, Act(1, STOP)):
        deadline = time.monotonic() + 30
        while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            assert time.monotonic() < deadline
        assert not (watched.folder / "made").exists()
        process.send_signal(signal.SIGCONT)
        process.communicate(timeout=30)
    assert (watched.folder / "made").is_dir()


def test_what_happens_elsewhere_is_not_recorded(tmp_path, watched):
    watched.run(f"open({str(tmp_path / 'elsewhere')!r}, 'w').write('x')")
    assert watched.calls == []


def test_a_folder_reached_by_a_symbolic_link_is_watched_too(tmp_path, watched):
    (tmp_path / "alias").symlink_to(watched.folder)
    watched.run(f"open({str(tmp_path / 'alias' / 'file')!r}, 'w').write('x')")
    assert [(call.kind, call.path) for call in watched.calls] == [
        ("create", str(watched.folder / "file")),
        ("write", str(watched.folder / "file")),
    ]


def test_threads_and_processes_share_one_numbering(watched):
    program = """
import os, sys, threading
from concurrent.futures import ThreadPoolExecutor
os.chdir(sys.argv[1])
if os.fork() == 0:
    for i in range(50):
        open(f"child{i}", "w").write("x")
    os._exit(0)
with ThreadPoolExecutor(4) as pool:
    list(pool.map(lambda i: open(f"parent{i}", "w").write("x"), range(50)))
os.wait()
"""
    code, _, err = watched.run(program)
    assert code == 0, err
    assert [call.number for call in watched.calls] == list(range(1, 201))
    found = build_images(scan_tree(Folders((), ()), watched.kept), watched.calls, watched.journal, watched.folders)
    assert len(distinct_images(found)) == 201


def test_a_change_that_was_not_seen_is_refused(watched):
    before = scan_tree(watched.folders, watched.kept)
    watched.run("import os, sys\nos.mkdir(sys.argv[1] + '/made')")
    (watched.folder / "unseen").write_text("x")
    found = build_images(before, watched.calls, watched.journal, watched.folders)
    with pytest.raises(ProverUnavailable) as refused:
        check_complete(found[-1].tree, watched.folders)
    assert "unseen" in refused.value.facts["problem"]
