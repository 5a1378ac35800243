"""`oncelake.yaml`: what it may say, and every way it can be wrong, with the line."""

from pathlib import Path

import pytest

from oncelake.declare.settings import FILE, LOCK_TIMEOUT, read_settings
from oncelake.declare.yaml_lines import read_yaml
from oncelake.errors import BadSettings


@pytest.fixture
def write(tmp_path):
    def write_settings(text):
        content = text if isinstance(text, bytes) else text.encode()
        (tmp_path / FILE).write_bytes(content)
        return tmp_path

    return write_settings


def refused(root, profile=None):
    with pytest.raises(BadSettings) as caught:
        read_settings(root, profile)
    assert caught.value.code == "bad_settings"
    assert caught.value.exit_code == 2
    return caught.value.facts


def test_an_empty_file_means_the_defaults(write):
    settings = read_settings(write(""))
    assert settings.lake == str(settings.root / "lake")
    assert (settings.pipelines, settings.spark, settings.lock_timeout) == (None, {}, LOCK_TIMEOUT)


def test_everything_that_may_be_said(write):
    root = write("lake: data\npipelines: jobs.py\nlock_timeout: 5\nspark: {spark.x: true, spark.y: 2, spark.z: text}\n")
    settings = read_settings(root)
    assert settings.lake == str(root / "data")
    assert settings.pipelines == "jobs.py"
    assert settings.lock_timeout == 5.0
    assert settings.spark == {"spark.x": "true", "spark.y": "2", "spark.z": "text"}


@pytest.mark.parametrize("lake", ["s3a://bucket/lake", "abfss://c@a.dfs.core.windows.net/x", "file:///data/lake"])
def test_a_uri_is_left_as_it_is(write, lake):
    assert read_settings(write(f"lake: {lake}\n")).lake == lake


@pytest.mark.parametrize(("lake", "found"), [("/data/lake", "/data/lake"), ("~/lake", str(Path.home() / "lake"))])
def test_a_lake_outside_the_project_is_found(write, lake, found):
    assert read_settings(write(f"lake: {lake}\n")).lake == str(Path(found).resolve())


def test_a_profile_overrides_what_it_names_and_nothing_else(write):
    root = write(
        "lake: here\nspark: {spark.a: 1, spark.b: 1}\nlock_timeout: 7\n"
        "profiles:\n  prod: {lake: 's3://there', spark: {spark.b: 2}}\n  slow: {lock_timeout: 60}\n"
    )
    prod, slow = read_settings(root, "prod"), read_settings(root, "slow")
    assert (prod.lake, prod.spark, prod.lock_timeout) == ("s3://there", {"spark.a": "1", "spark.b": "2"}, 7.0)
    assert (slow.lake, slow.spark, slow.lock_timeout) == (str(root / "here"), {"spark.a": "1", "spark.b": "1"}, 60.0)
    assert read_settings(root).lake == str(root / "here")


def test_an_empty_profile_changes_nothing(write):
    root = write("lake: here\nprofiles:\n  dev:\n")
    assert read_settings(root, "dev").lake == str(root / "here")


def test_no_file_is_said_with_the_path(tmp_path):
    assert refused(tmp_path)["where"] == str(tmp_path / FILE)


def test_a_folder_in_place_of_the_file_is_no_file(tmp_path):
    (tmp_path / FILE).mkdir()
    assert refused(tmp_path)["where"] == str(tmp_path / FILE)


@pytest.mark.parametrize("content", [b"lake: \xff\xfe", b"lake: a\x00b", b"lake: a\x07b"])
def test_a_file_that_is_no_text_cannot_be_read(write, content):
    assert refused(write(content))["where"] == FILE


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("lake: a\npipelines: [a, b\nspark: {}\n", 3),
        ("lake: a\n\tpipelines: x\n", 2),
        ("lake: 'a\n", 2),
        ("lake: a: b\n", 1),
        ("lake: *nothing\n", 1),
        ("lake: a\n---\nlake: b\n", 2),
        ("lake: a\nspark:\n  x: !!python/object:os.system {}\n", 3),
        ("lake: a\nspark:\n  x: !mine y\n", 3),
    ],
)
def test_bad_yaml_is_said_with_its_line(write, text, line):
    assert refused(write(text))["where"] == f"{FILE}:{line}"


@pytest.mark.parametrize("text", ["- a\n- b\n", "lake\n", "5\n"])
def test_a_file_without_keys_is_refused(write, text):
    assert refused(write(text))["where"] == f"{FILE}:1"


@pytest.mark.parametrize(
    ("text", "line", "guess"),
    [
        ("lake: a\n\n# a comment\nlakes: b\n", 4, "'lake'"),
        ("pipeline: a.py\n", 1, "'pipelines'"),
        ("lake: a\nprofiles:\n  prod:\n    lake: b\n    sparc: {}\n", 5, "'spark'"),
        ("lake: a\nprofiles:\n  prod: {pipelines: x}\n", 3, None),
        ("1: a\n", 1, None),
    ],
)
def test_an_unknown_key_is_said_with_its_line_and_a_guess(write, text, line, guess):
    facts = refused(write(text))
    assert facts["where"] == f"{FILE}:{line}"
    assert ("did you mean" in facts["problem"]) == (guess is not None)
    assert guess is None or f"did you mean {guess}" in facts["problem"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("lake: a\nspark: {}\nlake: b\n", 3),
        ("spark:\n  spark.x: 1\n  spark.x: 2\n", 3),
        ("profiles:\n  a: {}\n  a: {lake: b}\n", 3),
        ("pipelines:\n  orders: {every: day, every: hour}\n", 2),
    ],
)
def test_a_key_that_is_there_twice_is_refused(write, text, line):
    assert refused(write(text))["where"] == f"{FILE}:{line}"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("\nlake: 5\n", 2),
        ("\nlake:\n", 2),
        ("\nlake: ''\n", 2),
        ("\nlake: [a]\n", 2),
        ("\nspark: fast\n", 2),
        ("\nspark: [a]\n", 2),
        ("\nspark:\n  spark.x: [1]\n", 3),
        ("\nspark:\n  spark.x:\n", 3),
        ("\nspark:\n  1: x\n", 3),
        ("\nprofiles: prod\n", 2),
        ("\nprofiles:\n  prod: x\n", 3),
        ("\nprofiles:\n  prod:\n    lake: 5\n", 4),
        ("\nlock_timeout: soon\n", 2),
        ("\nlock_timeout: -1\n", 2),
        ("\nlock_timeout: true\n", 2),
        ("\npatience:\n", 2),
    ],
)
def test_a_wrong_type_is_said_with_its_line(write, text, line):
    assert refused(write(text))["where"] == f"{FILE}:{line}"


def test_a_patience_that_is_no_number_is_refused(write):
    assert refused(write("\nlock_timeout: .nan\n"))["where"] == f"{FILE}:2"


def test_a_wrong_patience_of_a_profile_is_said_with_its_own_line(write):
    assert refused(write("lake: a\nprofiles:\n  prod:\n    lock_timeout: soon\n"), "prod")["where"] == f"{FILE}:4"


@pytest.mark.parametrize(
    "text",
    [
        "\npipelines: {orders: {start: 2024-02-30}}\n",
        "\nspark: {spark.x: 2024-13-01}\n",
        "\nlake: {{ lake }}\n",
        "\n? [a, b]\n: c\n",
        "\nlake: !!int x\n",
    ],
)
def test_a_value_yaml_cannot_make_is_said_with_its_line(write, text):
    assert refused(write(text))["where"] == f"{FILE}:2"


def test_an_unknown_profile_is_refused_with_those_there_are(write):
    root = write("lake: a\nprofiles:\n  dev: {}\n  prod: {}\n")
    facts = refused(root, "prd")
    assert facts["where"] == f"{FILE}:2"
    assert "dev, prod" in facts["problem"]


def test_a_profile_where_there_are_none_is_refused(write):
    assert refused(write("lake: a\n"), "prod")["where"] == f"{FILE}:1"


def test_every_key_knows_its_line(write):
    root = write("lake: a\npipelines:\n  - one.py\n  - orders:\n      every: day\n")
    settings = read_settings(root)
    assert settings.at("pipelines", 0) == f"{FILE}:3"
    assert settings.at("pipelines", 1, "orders", "every") == f"{FILE}:5"


def test_an_alias_is_the_same_value_twice(write):
    document, _ = read_yaml(write("a: &x {k: 1}\nb: *x\n") / FILE, FILE)
    assert document == {"a": {"k": 1}, "b": {"k": 1}}
