"""Folders of ours that appear as a whole, and are moved aside: on the local disk and in an object store."""

import pytest

from oncelake.storage.objects import create_folder, move_folder, storage
from support.s3 import REGION, new_bucket, s3_server


@pytest.fixture(params=["local", "s3"])
def folder(request, tmp_path, monkeypatch):
    if request.param == "local":
        yield f"{tmp_path}/streams/payments/2"
        return
    with s3_server() as server:
        settings = {"AWS_ENDPOINT_URL": server, "AWS_REGION": REGION, "AWS_ALLOW_HTTP": "true"}
        for name, value in {**settings, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "key"}.items():
            monkeypatch.setenv(name, value)
        yield f"s3a://{new_bucket(server)}/streams/payments/2"


def test_a_folder_is_created_once_and_moved_as_a_whole(folder):
    files = {"checkpoint/sources/0/0": b"first", "stream.json": b"{}", "checkpoint/metadata": b"id"}
    assert create_folder(folder, files)
    assert not create_folder(folder, {"stream.json": b"other"})
    assert {name: storage(folder).read(name) for name in files} == files
    above, name = folder.rsplit("/", 1)
    assert storage(above).names() == [name]
    move_folder(f"{folder}/checkpoint", f"{folder}/checkpoint-1.old")
    assert storage(folder).names("checkpoint") == []
    assert storage(folder).read("checkpoint-1.old/sources/0/0") == b"first"
    assert storage(folder).read("checkpoint-1.old/metadata") == b"id"


def test_a_folder_that_cannot_be_made_leaves_nothing(tmp_path):
    (tmp_path / "streams").write_text("a file")
    with pytest.raises(OSError, match="streams"):
        create_folder(f"{tmp_path}/streams/1", {"a": b"b"})
