"""Listing input files: what is hidden, what cannot be read, and digests that do not depend on where the project is."""

import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from oncelake.errors import SourceUnreadable
from oncelake.storage.listing import digest, find_files, text_lines

HIDDEN = [
    "_temporary/0/task_1/part-0.json",
    ".staging/part-0.json",
    "a/_temporary/0/part-0.json",
    "a/_SUCCESS",
    "a/_part-0.json",
    "a/.part-0.json.crc",
    "a/part-9.json._COPYING_",
]
VISIBLE = ["a/part-0.json", "a/_day=1/part-0.json", "b/part_1.json"]


def write(root, *names):
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("{}\n")


def names(pattern, root):
    return [os.path.relpath(file.path, root) for file in find_files(str(pattern))]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("**/*.json", ["a/_day=1/part-0.json", "a/part-0.json", "b/part_1.json"]),
        ("*/*.json", ["a/part-0.json", "b/part_1.json"]),
        ("*/*", sorted(VISIBLE)),
        ("**/*", sorted(VISIBLE)),
        ("**", sorted(VISIBLE)),
        ("*", sorted(VISIBLE)),
        ("", sorted(VISIBLE)),
        ("a", ["a/_day=1/part-0.json", "a/part-0.json"]),
        ("*/part?0.json", ["a/part-0.json"]),
        ("[ab]/part[_-][01].json", ["a/part-0.json", "b/part_1.json"]),
        ("*/_temporary/*/*.json", []),
        ("a/part-0.json", ["a/part-0.json"]),
        ("a/_SUCCESS", []),
        ("nowhere/*.json", []),
        ("nowhere", []),
    ],
)
def test_hidden_names_are_skipped_in_every_component(tmp_path, pattern, expected):
    write(tmp_path, *HIDDEN, *VISIBLE)
    assert names(tmp_path / pattern, tmp_path) == expected


def test_the_fixed_prefix_may_be_hidden(tmp_path):
    write(tmp_path, "_landing/.in/2024-03-14/x.json")
    assert names(tmp_path / "_landing/.in/2024-03-14/*.json", tmp_path) == ["_landing/.in/2024-03-14/x.json"]
    assert names(tmp_path / "_landing/.in", tmp_path) == ["_landing/.in/2024-03-14/x.json"]


def test_links_to_folders_are_followed(tmp_path):
    write(tmp_path, "elsewhere/x.json")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/link").symlink_to(tmp_path / "elsewhere")
    assert names(tmp_path / "in/**/*.json", tmp_path) == names(tmp_path / "in", tmp_path) == ["in/link/x.json"]


@pytest.mark.parametrize(
    "pattern", ["file/*.json", "file/x/*.json", "file/x", f"{'n' * 300}/*.json", "dangling/*", "dangling"]
)
def test_a_folder_that_cannot_be_listed_is_an_error(tmp_path, pattern):
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "dangling").mkdir()
    (tmp_path / "dangling/link").symlink_to("nowhere")
    with pytest.raises(SourceUnreadable) as raised:
        find_files(str(tmp_path / pattern))
    assert raised.value.facts["path"] == str(tmp_path / pattern)


LISTED = """
import os, sys
from oncelake.errors import SourceUnreadable
from oncelake.storage.listing import find_files

if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
for pattern in sys.argv[1:]:
    try:
        print(len(find_files(pattern)))
    except SourceUnreadable as error:
        print(error.facts["problem"])
"""


@pytest.fixture
def open_folder():
    """A folder that other users may enter, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    (folder / "closed").chmod(0o755)
    shutil.rmtree(folder)


def test_a_folder_without_permission_is_an_error(open_folder):
    write(open_folder, "open/x.json", "closed/x.json")
    (open_folder / "closed").chmod(0)
    patterns = [f"{open_folder}/{name}" for name in ("open/*.json", "closed/*.json", "*/*.json", "**/*.json", "closed")]
    listed = subprocess.run([sys.executable, "-c", LISTED, *patterns], capture_output=True, text=True, check=True)
    assert listed.stdout.split("\n")[:-1] == ["1", *["Permission denied"] * 4]


def test_the_digest_does_not_depend_on_where_the_project_is(tmp_path):
    found = {}
    outside = tmp_path / "outside"
    write(outside, "x.json")
    for place in ("one", "deep/er/two"):
        root = tmp_path / place
        write(root, "landing/x.json")
        os.utime(root / "landing/x.json", ns=(1, 1))
        inside = digest(find_files(f"{root}/landing/*.json"), f"{root}/")
        absolute = digest(find_files(f"{outside}/*.json"), f"{root}/")
        found[place] = inside, absolute
    assert found["one"] == found["deep/er/two"]


def test_the_digest_tells_files_apart(tmp_path):
    write(tmp_path, "x.json")
    before = digest(find_files(str(tmp_path)), f"{tmp_path}/")
    os.utime(tmp_path / "x.json", ns=(1, 1))
    assert digest(find_files(str(tmp_path)), f"{tmp_path}/") != before


def test_lines_of_compressed_text(tmp_path):
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress("\ufeffid,näme\r\n1,a\r\n".encode()))
    assert list(text_lines(str(tmp_path / "x.csv.gz"), "utf-8-sig")) == ["id,näme", "1,a"]
    with pytest.raises(SourceUnreadable):
        list(text_lines(str(tmp_path / "nowhere.csv"), "utf-8"))


@pytest.fixture(scope="module")
def s3():
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


def test_an_object_store_is_listed_by_the_same_rules(s3, monkeypatch):
    bucket = f"b{uuid.uuid4().hex}"
    settings = {"ENDPOINT_URL": s3, "REGION": "us-east-1", "ACCESS_KEY_ID": "me", "SECRET_ACCESS_KEY": "secret"}
    for name, value in settings.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    urlopen(Request(f"{s3}/{bucket}", method="PUT")).close()
    for name in (*HIDDEN, *VISIBLE):
        kind = {"Content-Type": "application/json"}
        urlopen(Request(f"{s3}/{bucket}/in/{name}", data=b"{}\n", method="PUT", headers=kind)).close()
    for pattern, expected in {
        "in/**/*.json": sorted(VISIBLE),
        "in/*/*.json": ["a/part-0.json", "b/part_1.json"],
        "in": sorted(VISIBLE),
        "in/*": sorted(VISIBLE),
        "in/a/part-0.json": ["a/part-0.json"],
        "nowhere/*": [],
    }.items():
        root = f"s3a://{bucket}/in/"
        assert [file.path.removeprefix(root) for file in find_files(f"s3a://{bucket}/{pattern}")] == expected
    assert list(text_lines(f"s3a://{bucket}/in/a/part-0.json", "utf-8")) == ["{}"]
