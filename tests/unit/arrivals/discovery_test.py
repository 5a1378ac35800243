"""Discovery: which files a pattern matches, what is left out and why, and names of every kind."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from oncelake.errors import SourceUnreadable
from oncelake.sources.arrivals import discovery, object_listing
from oncelake.sources.arrivals.discovery import FILES, discover, partition_values
from oncelake.storage import conditional, options
from oncelake.storage.listing import find_files
from support.s3 import INTERNAL_ERROR, REGION, new_bucket, proxy, s3_server

HIDDEN = [
    "_temporary/0/task_1/part-0.json",
    ".staging/part-0.json",
    "a/_temporary/0/part-0.json",
    "a/_SUCCESS",
    "a/_part-0.json",
    "a/.part-0.json.crc",
]
VISIBLE = ["a/part-0.json", "a/_day=1/part-0.json", "b/part_1.json", "b/c/d/e.json", "x.json/y.csv"]
ODD = [
    "a b/c d.json",
    "100%/%41.json",
    "k=v/a=b=c.json",
    "new\nline/new\nline.json",
    "é.json",
    "e\u0301.json",
    "n" * 250 + ".json",
    "\U0001f600.json",
    "quote'\"\\.json",
    "[a]{b}*?.json",
]
PATTERNS = [
    "**/*.json",
    "*/*.json",
    "*/*",
    "**/*",
    "**",
    "*",
    "",
    "a",
    "*/part?0.json",
    "[ab]/part[_-][01].json",
    "*/_temporary/*/*.json",
    "a/part-0.json",
    "a/_SUCCESS",
    "b/**",
    "**/c/**",
    "**/c/**/*.json",
    "**/d",
    "b/**/**/e.json",
    "*/**/*.csv",
    "nowhere/*.json",
    "nowhere",
]


def write(root, *names, content="{}\n"):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(content)


def paths(pattern, root, **arguments):
    return discover(str(pattern), str(root), **arguments).files["path"].to_pylist()


def left_out(pattern, root):
    found = discover(str(pattern), str(root))
    assert found.ignored_count >= len(found.ignored)
    return sorted(found.ignored)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_means_the_same_as_for_files_by_interval(tmp_path, pattern):
    write(tmp_path, *HIDDEN, *VISIBLE)
    expected = [os.path.relpath(file.path, tmp_path) for file in find_files(str(tmp_path / pattern), str(tmp_path))]
    assert paths(tmp_path / pattern, tmp_path) == sorted(expected)


def test_files_have_size_and_time_and_are_sorted(tmp_path):
    for name, size in (("b", 3), ("a/z", 0), ("a.b", 5)):
        write(tmp_path, name, content="x" * size)
        os.utime(tmp_path / name, ns=(1, 1_700_000_000_123_456_789 + size))
    found = discover(str(tmp_path), str(tmp_path))
    assert found.files.schema.equals(FILES)
    assert found.files.to_pylist() == [
        {"path": path, "size": size, "modified": 1_700_000_000_123_456_789 + size}
        for path, size in (("a.b", 5), ("a/z", 0), ("b", 3))
    ]
    assert (found.ignored, found.ignored_count) == ((), 0)


def test_every_name_is_found_and_kept_as_it_is(tmp_path):
    write(tmp_path, *ODD)
    assert paths(tmp_path / "**/*.json", tmp_path) == sorted(ODD)
    assert paths(tmp_path, tmp_path) == sorted(ODD)


def test_paths_are_relative_to_the_root_so_that_a_project_can_move(tmp_path):
    write(tmp_path / "one [1]*", "in/x.json")
    write(tmp_path / "elsewhere", "y.json")
    root = tmp_path / "one [1]*"
    before = discover(f"{root}/in/*.json", f"{root}/").files
    assert before["path"].to_pylist() == ["in/x.json"]
    shutil.move(root, tmp_path / "two")
    after = discover(f"file://{tmp_path}/two/in/*.json", f"file://{tmp_path}/two").files
    assert after.equals(before)
    assert paths(tmp_path / "elsewhere/*", tmp_path / "two") == [f"{tmp_path}/elsewhere/y.json"]
    assert paths(tmp_path / "two/in/x.json", tmp_path / "two") == ["in/x.json"]
    assert paths(tmp_path / "two", tmp_path / "two") == ["in/x.json"]
    # A neighbour whose name begins alike is not below it.
    assert paths(tmp_path / "two/*", tmp_path / "tw") == [f"{tmp_path}/two/in/x.json"]


@pytest.mark.parametrize(
    "name",
    [
        "x.json.tmp",
        "x.TMP",
        "x.part",
        "x.partial",
        "x.crdownload",
        "x._COPYING_",
        "x.filepart",
        ".x.swp",
        "x.swp",
        "x~",
    ],
)
def test_temporary_names_are_left_out_with_a_reason(tmp_path, name):
    write(tmp_path, "in/x.json", f"in/{name}", f"in/{name}.d/{name}/y.json")
    found = discover(f"{tmp_path}/in", str(tmp_path))
    hidden = name.startswith(".")
    assert found.files["path"].to_pylist() == ["in/x.json"]
    ignored = [f"in/{name}", f"in/{name}.d/" if hidden else f"in/{name}.d/{name}/"]
    assert sorted(each.path for each in found.ignored) == sorted(ignored)
    assert found.ignored_count == 2


def test_what_is_left_out_is_counted_and_sampled(tmp_path):
    write(tmp_path, *(f"in/{number:02}.tmp" for number in range(25)), "in/_SUCCESS", "in/.git/a", "in/.git/b")
    found = discover(f"{tmp_path}/in", str(tmp_path))
    assert found.ignored_by_reason == {"name like *.tmp": 25, "hidden name": 2}
    assert found.ignored_count == 27
    assert len(found.ignored) == 12
    assert {each.path for each in found.ignored if each.reason == "hidden name"} == {"in/_SUCCESS", "in/.git/"}
    # Only what the pattern asks for is left out; the others are not meant.
    assert left_out(tmp_path / "in/*.json", tmp_path) == []


def test_the_names_that_are_left_out_can_be_chosen(tmp_path):
    write(tmp_path, "x.tmp", "x.json", "test-1.json", "_x", "x._COPYING_")
    assert paths(tmp_path, tmp_path, ignore=()) == ["test-1.json", "x.json", "x.tmp"]
    assert paths(tmp_path, tmp_path, ignore=["TEST-?.json", "*.tmp"]) == ["x.json"]


def test_names_that_are_not_utf8_are_left_out_and_the_others_are_not(tmp_path):
    write(tmp_path, "in/good.json", "in/é.json")
    folder = os.fsencode(tmp_path / "in")
    for name in (b"bad\xff.json", b"latin\xe9/x.json"):
        os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
        with open(os.path.join(folder, name), "wb"):
            pass
    assert paths(tmp_path / "in/**/*.json", tmp_path) == ["in/good.json", "in/é.json"]
    assert left_out(tmp_path / "in", tmp_path) == [
        ("in/bad\\xff.json", "name is not UTF-8"),
        ("in/latin\\xe9/", "name is not UTF-8"),
    ]


def test_special_files_are_left_out(tmp_path):
    write(tmp_path, "x.json")
    os.mkfifo(tmp_path / "fifo.json")
    with socket.socket(socket.AF_UNIX) as unix:
        here = os.getcwd()
        os.chdir(tmp_path)  # the path of a socket is short
        unix.bind("socket.json")
        os.chdir(here)
        (tmp_path / "link.json").symlink_to("fifo.json")
        assert paths(tmp_path / "*.json", tmp_path) == ["x.json"]
        assert [each.path for each in discover(f"{tmp_path}/*.json", str(tmp_path)).ignored] == [
            "fifo.json",
            "link.json",
            "socket.json",
        ]
        assert left_out(tmp_path / "fifo.json", tmp_path) == [("fifo.json", "not a regular file")]


def test_links_to_files_and_folders_are_followed(tmp_path):
    write(tmp_path, "elsewhere/sub/x.json", content="{}{}")
    write(tmp_path, "in/.versions/5/y.json")
    (tmp_path / "in/link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in/file.json").symlink_to(tmp_path / "elsewhere/sub/x.json")
    (tmp_path / "in/current").symlink_to(".versions/5")
    found = discover(f"{tmp_path}/in/**/*.json", str(tmp_path)).files
    assert found["path"].to_pylist() == ["in/current/y.json", "in/file.json", "in/link/sub/x.json"]
    assert found["size"].to_pylist() == [3, 4, 4]


def test_a_folder_is_listed_once_and_a_real_path_wins(tmp_path):
    write(tmp_path, "in/2024-03-15/x.json", "elsewhere/y.json")
    (tmp_path / "in/2024-latest").symlink_to("2024-03-15")
    (tmp_path / "in/2025-latest").symlink_to("2024-latest")
    (tmp_path / "in/b").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in/a").symlink_to(tmp_path / "elsewhere")
    for pattern in ("in", "in/**", "in/*/*.json", "in/**/*.json"):
        assert paths(tmp_path / pattern, tmp_path) == ["in/2024-03-15/x.json", "in/a/y.json"]
        reason = "link to a folder that is listed already"
        assert left_out(tmp_path / pattern, tmp_path) == [
            (path, reason) for path in ("in/2024-latest/", "in/2025-latest/", "in/b/")
        ]
    assert paths(tmp_path / "in/2024-latest/*", tmp_path) == ["in/2024-latest/x.json"]


def test_loops_of_links_end_and_are_said(tmp_path):
    write(tmp_path, "in/a/x.json", "in/b/y.json", "outside/z.json")
    (tmp_path / "in/a/up").symlink_to(tmp_path / "in")
    (tmp_path / "in/a/b").symlink_to("../b")
    (tmp_path / "in/b/a").symlink_to("../a")
    (tmp_path / "in/self").symlink_to("self")
    (tmp_path / "in/ping").symlink_to("pong")
    (tmp_path / "in/pong").symlink_to("ping")
    (tmp_path / "in/dangling.json").symlink_to("nowhere")
    (tmp_path / "in/out").symlink_to(tmp_path / "outside")
    (tmp_path / "outside/back").symlink_to(tmp_path / "outside")
    found = discover(f"{tmp_path}/in", str(tmp_path))
    assert found.files["path"].to_pylist() == ["in/a/x.json", "in/b/y.json", "in/out/z.json"]
    assert found.ignored_by_reason == {
        "link to a folder that is listed already": 4,
        "link that leads to itself": 3,
        "link to nothing": 1,
    }


def test_many_folders_that_link_to_each_other_are_listed_once(tmp_path):
    for one in range(12):
        write(tmp_path, f"in/{one}/x.json")
        for other in range(12):
            (tmp_path / f"in/{one}/to{other}").symlink_to(f"../{other}")
    assert len(paths(tmp_path / "in/**/*.json", tmp_path)) == 12


def test_folders_may_be_deeper_than_python_recurses(tmp_path):
    depth = sys.getrecursionlimit() + 200
    folder = os.open(tmp_path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=folder)
        folder, above = os.open("d", os.O_RDONLY, dir_fd=folder), folder
        os.close(above)
    os.close(os.open("x.json", os.O_CREAT, dir_fd=folder))
    os.close(folder)
    try:
        assert paths(tmp_path, tmp_path) == ["d/" * depth + "x.json"]
    finally:
        # Python's own removal recurses, and pytest would fail in it.
        subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)


@pytest.mark.parametrize("pattern", ["file/*.json", "file/x/*.json", "file/x", f"{'n' * 300}/*.json"])
def test_what_cannot_be_listed_is_an_error(tmp_path, pattern):
    write(tmp_path, "file")
    with pytest.raises(SourceUnreadable):
        discover(f"{tmp_path}/{pattern}", str(tmp_path))


AS_NOBODY = """
import os, sys
from oncelake.errors import SourceUnreadable
from oncelake.sources.arrivals.discovery import discover

discover(sys.argv[1], "")  # imports everything, while this user may
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
for pattern in sys.argv[1:]:
    try:
        print(discover(pattern, "").files.num_rows)
    except SourceUnreadable as error:
        print(error.message)
"""


def test_an_unreadable_folder_is_an_error_that_names_it():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        write(Path(folder), "open/x.json", "closed/y.json")
        os.chmod(f"{folder}/closed", 0)
        patterns = [f"{folder}/{name}" for name in ("open/*.json", "closed/*.json", "*/*.json", "**/*.json", "")]
        done = subprocess.run([sys.executable, "-c", AS_NOBODY, *patterns], capture_output=True, text=True, check=True)
        os.chmod(f"{folder}/closed", 0o755)
        closed = f"cannot read the input at {folder}/closed: Permission denied"
        assert done.stdout.splitlines() == ["1", *[closed] * 4]


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A hundred thousand files in one folder. Links to one file are made faster than files, and removed faster."""
    folder = tmp_path_factory.mktemp("many")
    for part in range(2):
        (folder / f"first{part}").write_text("{}")
        for number in range(50_000):
            os.link(folder / f"first{part}", folder / f"part-{part}{number:06}.json")
    yield folder
    shutil.rmtree(folder)


def test_a_hundred_thousand_files_in_one_folder(many):
    assert discover(f"{many}/*.json", str(many)).files.num_rows == 100_000


def test_the_memory_for_many_files_is_that_of_arrow(many):
    """Not that of Python objects: about 150 bytes for a file are in the table and its sorted copy."""
    script = """
import resource, sys
from oncelake.sources.arrivals.discovery import discover
discover(sys.argv[1] + "/part-0000*.json", sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = discover(sys.argv[1], sys.argv[1]).files
print(found.num_rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", script, many], capture_output=True, text=True, check=True)
    count, kilobytes = map(int, done.stdout.split())
    assert count == 100_002
    assert kilobytes < 40_000


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("in/x.json", {}),
        ("in/day=2024-03-15/region=EU/x.json", {"day": "2024-03-15", "region": "EU"}),
        ("in/a=b=c/x.json", {"a": "b=c"}),
        ("in/day=2024-03-15/a=b.json", {"day": "2024-03-15"}),
        ("in/at=2024-03-15 10%3A00%3a00/x", {"at": "2024-03-15 10:00:00"}),
        ("in/a%3Db=100%25/x", {"a=b": "100%"}),
        ("in/a=__HIVE_DEFAULT_PARTITION__/b=/x", {"a": None, "b": ""}),
        ("in/=x/a=5%/b=%zz/x", {"a": "5%", "b": "%zz"}),
        ("in/città=Forlì/x", {"città": "Forlì"}),
        ("s3a://bucket/k=v/x", {"k": "v"}),
        ("/abs/k=1/k=2/x", {"k": "2"}),
    ],
)
def test_hive_folders_become_values(path, expected):
    assert partition_values(path) == expected


@pytest.fixture(scope="module")
def server():
    with s3_server() as address:
        yield address


@pytest.fixture
def front(server, monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(options, "_settings", {})
    monkeypatch.setattr(conditional, "_found", {})
    with proxy(server) as made:
        made.bucket = new_bucket(server)
        for name, value in {"ENDPOINT_URL": made.address, "REGION": REGION, "ACCESS_KEY_ID": "me"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        yield made


def put(front, *keys, content=b"{}\n"):
    import boto3

    secrets = {"aws_access_key_id": "me", "aws_secret_access_key": "secret", "region_name": REGION}
    client = boto3.client("s3", endpoint_url=front.server, **secrets)
    for key in keys:
        client.put_object(Bucket=front.bucket, Key=key, Body=content)


@pytest.mark.parametrize("levels", [0, 4])
def test_a_pattern_means_the_same_in_an_object_store(front, tmp_path, monkeypatch, levels):
    monkeypatch.setattr(object_listing, "_LEVELS", levels)
    write(tmp_path, *HIDDEN, *VISIBLE)
    put(front, *(f"land/{name}" for name in (*HIDDEN, *VISIBLE)), "landing/other.json")
    root = f"s3a://{front.bucket}/land"
    for pattern in PATTERNS:
        assert paths(f"{root}/{pattern}", root) == paths(tmp_path / pattern, tmp_path), pattern
    local, remote = discover(str(tmp_path), str(tmp_path)), discover(root, root)
    assert remote.ignored == local.ignored
    assert remote.ignored_by_reason == local.ignored_by_reason


def test_objects_have_size_and_time_and_every_name(front):
    odd = [name for name in ODD if "\n" not in name]  # the server takes no such names
    put(front, *(f"in/{name}" for name in odd))
    put(front, "in/empty.json", content=b"")
    found = discover(f"s3://{front.bucket}/in", "/project").files
    # One name for S3: a path is an identity.
    prefix = f"s3a://{front.bucket}/in/"
    assert found["path"].to_pylist() == sorted(prefix + name for name in (*odd, "empty.json"))
    assert {*found["size"].to_pylist()} == {0, 3}
    now = time.time_ns()
    assert all(now - 60_000_000_000 < modified <= now for modified in found["modified"].to_pylist())
    assert all(modified % 1_000_000_000 == 0 for modified in found["modified"].to_pylist())
    assert discover(f"s3a://{front.bucket}/in/empty.json", f"s3n://{front.bucket}").files.num_rows == 1


@pytest.mark.parametrize("levels", [0, 4])
def test_objects_that_stand_for_folders_are_no_files(front, monkeypatch, levels):
    monkeypatch.setattr(object_listing, "_LEVELS", levels)
    put(front, "in/", "in/a/", "in/a/b/", "in/a/b/empty", "in/c/", content=b"")
    put(front, "in/a/x.json")
    root = f"s3a://{front.bucket}"
    assert paths(f"{root}/in", root) == ["in/a/b/empty", "in/a/x.json"]


def test_keys_that_cannot_be_paths_do_not_hide_the_others(front):
    put(front, "in/ok.json", "in/a//b.json", "in/../up.json", "in/z/ok.json", "in/z/control\x01.json", "in/z/.x")
    root = f"s3a://{front.bucket}"
    assert paths(f"{root}/in", root) == ["in/ok.json", "in/z/ok.json"]
    assert left_out(f"{root}/in", root) == [
        ("in/../up.json", "name cannot be a path"),
        ("in/a//b.json", "name cannot be a path"),
        ("in/z/.x", "hidden name"),
        ("in/z/control\x01.json", "name cannot be a path"),
    ]


def test_prefixes_are_listed_in_parallel_one_listing_each(front):
    put(front, *(f"in/day={day:02}/{part}/x.json" for day in range(20) for part in range(2)))
    root = f"s3a://{front.bucket}"
    front.requests.clear()
    assert len(paths(f"{root}/in/**/*.json", root)) == 40
    assert len([path for method, path in front.requests if method == "GET"]) == 1 + 20
    front.requests.clear()
    assert len(paths(f"{root}/in/day=1?/*/*.json", root)) == 20
    # Folders that cannot match are not listed: the first level, the ten days, and what is in them.
    assert len([path for method, path in front.requests if method == "GET"]) <= 1 + 10 + 20


def test_a_store_that_fails_is_an_error_and_not_an_empty_folder(front, monkeypatch):
    monkeypatch.setattr(object_listing, "_RETRIES", {"max_retries": 0})
    put(front, "in/x.json")
    front.fault = lambda *_: INTERNAL_ERROR
    with pytest.raises(SourceUnreadable):
        discover(f"s3a://{front.bucket}/in/*.json", "")
    front.calm()
    with pytest.raises(SourceUnreadable):
        discover("s3a://no-such-bucket-anywhere/in/*.json", "")
    assert discover(f"s3a://{front.bucket}/nowhere/*.json", "").files.num_rows == 0


def test_chunks_do_not_show(tmp_path, monkeypatch):
    monkeypatch.setattr(discovery, "CHUNK", 3)
    write(tmp_path, *(f"{number:02}.json" for number in range(10)))
    found = discover(str(tmp_path), str(tmp_path)).files
    assert found["path"].to_pylist() == [f"{number:02}.json" for number in range(10)]


def stored(pattern, root):
    return discover(pattern, str(root)).files["path"].to_pylist()


def test_every_spelling_of_a_folder_gives_the_same_paths(tmp_path):
    root = tmp_path / "project"
    for folder in (root / "in" / "deep", tmp_path / "outside"):
        folder.mkdir(parents=True)
        (folder / "a.json").touch()
    for spelled in ("in", "./in", "in/", "in//", "in/../in", "in/deep/..", "../project/in", "in/./deep/../"):
        assert stored(f"{root}/{spelled}", root) == ["in/deep/a.json"], spelled
        assert stored(f"{root}/{spelled}/**/*.json", root) == ["in/deep/a.json"], spelled
    for spelled in ("../outside", "../outside/../outside", "in/../../outside"):
        assert stored(f"{root}/{spelled}", root) == ["../outside/a.json"], spelled
    assert stored(f"{tmp_path}/project/../outside", root / "in") == [f"{tmp_path}/outside/a.json"]


def test_a_link_before_two_dots_is_followed(tmp_path):
    (tmp_path / "far" / "target").mkdir(parents=True)
    (tmp_path / "far" / "in").mkdir()
    (tmp_path / "far" / "in" / "a.json").touch()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b.json").touch()
    (tmp_path / "link").symlink_to(tmp_path / "far" / "target")
    (path,) = stored(f"{tmp_path}/link/../in", tmp_path)
    assert (tmp_path / path).samefile(tmp_path / "far" / "in" / "a.json")
