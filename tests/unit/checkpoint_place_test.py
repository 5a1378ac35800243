"""Where checkpoints may not be kept: in temporary or local folders, in tables, and where a rule of the store removes them."""

import os

import pytest

import oncelake as once
from oncelake.declare.settings import read_settings
from oncelake.delta.tables import Lake
from oncelake.errors import BadSettings, CheckpointMisplaced
from oncelake.planning.checkpoint_place import expiry_problem, place_problem
from oncelake.storage.lifecycle import _rules, expiring_rule, find_expiring
from support.s3 import REGION, new_bucket, s3_server

TABLES = {"bronze": "/data/lake/bronze", "events": "s3a://bucket/events"}


@pytest.mark.parametrize(
    ("folder", "lake", "problem"),
    [
        ("/data/lake/_oncelake/streams/a/1/checkpoint", "/data/lake", None),
        ("/fast/checkpoints/a/1/checkpoint", "/data/lake", None),
        ("s3a://bucket/checkpoints/a", "s3://bucket/lake", None),
        ("/tmp/checkpoints/a", "/tmp/lake", None),
        ("/tmp/checkpoints/a", "/data/lake", "temporary"),
        ("file:///var/tmp/a", "/data/lake", "temporary"),
        ("/data/checkpoints/a", "s3a://bucket/lake", "on this machine"),
        ("/data/lake/bronze/checkpoint", "/data/lake", "the table bronze"),
        ("/data/lake/bronze", "/data/lake", "the table bronze"),
        ("/data/lake/bronze2/checkpoint", "/data/lake", None),
        ("s3://bucket/events/checkpoint", "s3a://bucket/lake", "the table events"),
    ],
)
def test_places(folder, lake, problem):
    found = place_problem(folder, lake, TABLES)
    assert (found is None) if problem is None else (problem in found)


def test_a_link_into_a_table_is_followed(tmp_path):
    table = tmp_path / "lake" / "bronze"
    table.mkdir(parents=True)
    os.symlink(table, tmp_path / "link")
    assert "the table bronze" in place_problem(f"{tmp_path}/link/a", f"{tmp_path}/lake", {"bronze": str(table)})


@pytest.mark.parametrize(
    ("rule", "expires"),
    [
        ({"Prefix": "", "Expiration": {"Days": 30}}, True),
        ({"Filter": {"Prefix": "lake/"}, "Expiration": {"Days": 30}}, True),
        ({"Filter": {"Prefix": "lake/_oncelake/streams/a/1/"}, "Expiration": {"Date": "2030-01-01"}}, True),
        ({"Filter": {"And": {"Prefix": "lake/"}}, "Expiration": {"Days": 1}}, True),
        ({"Filter": {"Prefix": "logs/"}, "Expiration": {"Days": 30}}, False),
        ({"Filter": {"Prefix": "lake/"}, "Expiration": {"ExpiredObjectDeleteMarker": True}}, False),
        ({"Filter": {"Prefix": "lake/"}, "NoncurrentVersionExpiration": {"NoncurrentDays": 1}}, False),
        ({"Filter": {"Tag": {"Key": "a", "Value": "b"}}, "Expiration": {"Days": 30}}, False),
        ({"Filter": {"And": {"Prefix": "", "Tags": []}}, "Expiration": {"Days": 30}}, False),
        ({"Status": "Disabled", "Prefix": "", "Expiration": {"Days": 30}}, False),
    ],
)
def test_rules(rule, expires):
    found = find_expiring([{"Status": "Enabled", "ID": "clean", **rule}], "lake/_oncelake/streams/a/")
    assert (found is not None) == expires


def test_a_store_is_asked_for_its_rules(monkeypatch):
    import boto3

    with s3_server() as server:
        for name, value in {"AWS_ENDPOINT_URL": server, "AWS_REGION": REGION, "AWS_ALLOW_HTTP": "true"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "reader")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "reader")
        bucket = new_bucket(server)
        folder = f"s3a://{bucket}/lake/_oncelake/streams/a/1/checkpoint"
        assert expiring_rule(folder) is None
        _rules.cache_clear()
        rule = {"ID": "clean", "Status": "Enabled", "Filter": {"Prefix": "lake/_onc"}, "Expiration": {"Days": 7}}
        client = boto3.client("s3", endpoint_url=server, region_name=REGION)
        client.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [rule]})
        assert (
            expiry_problem(folder) == "a lifecycle rule of the bucket removes its files (clean: lake/_onc after 7 days)"
        )
    _rules.cache_clear()


def test_a_store_that_does_not_answer_says_nothing(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_REGION", REGION)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "reader")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "reader")
    assert expiry_problem("s3://nobody/checkpoints/a") is None


def test_local_folders_are_not_asked_about():
    assert expiry_problem("/data/checkpoints", ask=lambda _: "every day") is None


def test_each_lake_has_a_folder_of_its_own_for_checkpoints():
    lakes = [Lake(path, "/", checkpoints="/fast") for path in ("/a/lake", "/b/lake")]
    one, other = (lake.stream_path("payments") for lake in lakes)
    assert one != other
    assert one.startswith("/fast/lake-")
    assert Lake("/a/lake", "/").stream_path("payments") == "/a/lake/_oncelake/streams/payments"


def test_a_misplaced_checkpoint_stops_the_stream_before_it_begins(tmp_path):
    declared = once.pipeline(
        name="payments", reads=once.kafka("t", servers="127.0.0.1:1"), writes=once.append("bronze")
    )(lambda messages: messages)
    project = once.Project.of(declared, lake=tmp_path / "lake")
    (tmp_path / "lake" / "bronze").mkdir(parents=True)
    project.lake = Lake(str(tmp_path / "lake"), "/", checkpoints=str(tmp_path / "lake" / "bronze"))
    (item,) = project.plan("payments").works
    assert isinstance(item.refusal, CheckpointMisplaced)
    assert "the table bronze" in item.why


def test_checkpoints_are_a_setting_of_the_project_and_of_a_profile(tmp_path):
    text = "checkpoints: there\nprofiles: {fast: {checkpoints: s3a://bucket/fast}, lake: {lake: other}}\n"
    (tmp_path / "oncelake.yaml").write_text(text)
    found = [read_settings(tmp_path, profile).checkpoints for profile in (None, "fast", "lake")]
    assert found == [str(tmp_path / "there"), "s3a://bucket/fast", str(tmp_path / "there")]


def test_checkpoints_must_be_a_folder_or_uri(tmp_path):
    (tmp_path / "oncelake.yaml").write_text("lake: lake\ncheckpoints: 7\n")
    with pytest.raises(BadSettings, match=r"oncelake\.yaml:2: checkpoints"):
        read_settings(tmp_path)
