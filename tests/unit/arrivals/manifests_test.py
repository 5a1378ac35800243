"""Manifests: frozen once, durable, never half of one; outcomes; and files as a text for commits."""

import json
import os
import random
import signal
import subprocess
import sys
import textwrap

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from oncelake.errors import ManifestUnreadable
from oncelake.sources.arrivals.discovery import FILES
from oncelake.sources.arrivals.manifests import (
    OUTCOMES,
    Manifests,
    conform,
    decode_files,
    encode_files,
)
from oncelake.storage import conditional
from support.s3 import LOST_ANSWER, REGION, UNCONDITIONAL, new_bucket, proxy, s3_server

ODD = [
    "a b/100%.json",
    "day=2024-03-15/%41.json",
    "new\nline\ttab.json",
    "é.json",
    "e\u0301.json",
    "n" * 255,
    "\U0001f600",
]


def files(*paths, size=7, modified=1_700_000_000_123_456_789):
    return pa.table({"path": paths, "size": [size] * len(paths), "modified": [modified] * len(paths)}, schema=FILES)


def outcomes(table, state="done", **columns):
    return conform(table.append_column("state", pa.repeat(state, table.num_rows)), OUTCOMES)


@pytest.fixture
def manifests(tmp_path):
    return Manifests(str(tmp_path / "lake/_oncelake/arrivals/orders"))


def test_a_frozen_manifest_is_read_as_it_was_written(manifests, tmp_path):
    assert manifests.numbers() == []
    assert manifests.freeze(17, files(*ODD), {"path": "in/*", "by": ["é", 1, None]})
    found = manifests.load(17)
    assert found.number == 17
    assert found.files.equals(files(*ODD))
    assert found.facts == {"path": "in/*", "by": ["é", 1, None]}
    assert manifests.numbers() == [17]
    # Anybody can read it.
    plain = pq.read_table(f"{manifests.folder}/manifests/00000017.parquet")
    assert plain["path"].to_pylist() == ODD
    assert json.loads(plain.schema.metadata[b"oncelake.facts"])["path"] == "in/*"
    umask = os.umask(0)
    os.umask(umask)
    assert os.stat(f"{manifests.folder}/manifests/00000017.parquet").st_mode & 0o777 == 0o666 & ~umask


def test_a_number_is_frozen_once(manifests):
    assert manifests.freeze(0, files("a"), {})
    assert not manifests.freeze(0, files("b"), {})
    assert not manifests.freeze(0, files("a"), {})
    assert manifests.load(0).files.equals(files("a"))
    assert os.listdir(f"{manifests.folder}/manifests") == ["00000000.parquet"]


def test_the_digest_is_of_the_files(manifests):
    for number, table in enumerate([files("a", "b"), files("a", "b"), files("ab", ""), files("a", "b", size=8)]):
        manifests.freeze(number, table, {"number": number})
    digests = [manifests.load(number).digest for number in range(4)]
    assert digests[0] == digests[1]
    assert len({*digests}) == 3


def test_numbers_are_in_order_and_after_a_number(manifests):
    for number in (3, 10, 123_456_789, 2):
        manifests.freeze(number, files(), {})
    assert manifests.numbers() == [2, 3, 10, 123_456_789]
    assert manifests.numbers(after=3) == [10, 123_456_789]
    assert manifests.load(123_456_789).files.num_rows == 0


def damaged(content):
    rng = random.Random(16)
    yield b""
    yield b"PAR1"
    yield b"{}" * 100
    for cut in (1, 4, 8, len(content) // 2, len(content) - 1):
        yield content[:-cut]
    for _ in range(150):
        place = rng.randrange(len(content))
        yield content[:place] + bytes([content[place] ^ rng.randrange(1, 256)]) + content[place + 1 :]


def test_a_damaged_manifest_is_an_error_that_names_the_file_and_never_other_files(manifests):
    manifests.freeze(4, files(*ODD), {"path": "in/*"})
    path = f"{manifests.folder}/manifests/00000004.parquet"
    with open(path, "rb") as stream:
        content = stream.read()
    errors = []
    for bad in damaged(content):
        with open(path, "wb") as stream:
            stream.write(bad)
        try:
            found = manifests.load(4)
        except ManifestUnreadable as error:
            errors.append(error)
        else:  # the damage is in statistics, or in the name of the writer
            assert found.files.equals(files(*ODD))
            assert found.facts == {"path": "in/*"}
    assert len(errors) > 100
    assert all(error.facts["path"] == path and path in str(error) for error in errors)
    assert all(
        error.facts["pipeline"] == "orders" and f"restore {path} from a backup" in error.next for error in errors
    )


def test_a_manifest_that_is_missing_or_of_another_batch_is_an_error(manifests):
    with pytest.raises(ManifestUnreadable, match=r"00000001\.parquet: it does not exist"):
        manifests.load(1)
    manifests.freeze(1, files("a"), {})
    os.rename(f"{manifests.folder}/manifests/00000001.parquet", f"{manifests.folder}/manifests/00000002.parquet")
    with pytest.raises(ManifestUnreadable, match="another batch"):
        manifests.load(2)


def test_an_error_of_reading_is_not_taken_for_damage(manifests):
    os.makedirs(f"{manifests.folder}/manifests/00000001.parquet")
    with pytest.raises(IsADirectoryError):
        manifests.load(1)


def test_outcomes_are_recorded_and_replaced_as_a_whole(manifests):
    assert manifests.outcomes(3) is None
    assert manifests.recorded() == []
    table = files("a", "b")
    manifests.record(3, table.append_column("state", pa.array(["done", "gone"])))
    found = manifests.outcomes(3)
    assert found.schema.equals(OUTCOMES)
    assert found["state"].to_pylist() == ["done", "gone"]
    assert found["rows_read"].to_pylist() == [None, None]
    manifests.record(3, outcomes(table, "quarantined"))
    assert manifests.outcomes(3).equals(outcomes(table, "quarantined"))
    assert manifests.recorded() == [3]
    assert os.listdir(f"{manifests.folder}/outcomes") == ["00000003.parquet"]
    with open(f"{manifests.folder}/outcomes/00000003.parquet", "r+b") as stream:
        stream.truncate(50)
    with pytest.raises(ManifestUnreadable, match=r"outcomes/00000003\.parquet: it is not a whole parquet file"):
        manifests.outcomes(3)


KILLED = """
import os, signal, sys
import pyarrow as pa
from oncelake.sources.arrivals.manifests import Manifests
from oncelake.sources.arrivals.discovery import FILES

folder, function, when = sys.argv[1:]
real = getattr(os, function)

def killed(*arguments):
    if when == "after":
        real(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)

Manifests(folder).freeze(0, pa.table({"path": ["first"], "size": [1], "modified": [1]}, schema=FILES), {})
setattr(os, function, killed)
Manifests(folder).freeze(1, pa.table({"path": ["in/x"], "size": [1], "modified": [1]}, schema=FILES), {})
"""


@pytest.mark.parametrize(
    ("function", "when", "frozen"), [("fsync", "before", False), ("link", "before", False), ("link", "after", True)]
)
def test_a_process_killed_while_it_freezes_leaves_the_whole_manifest_or_none(manifests, function, when, frozen):
    done = subprocess.run([sys.executable, "-c", KILLED, manifests.folder, function, when], check=False)
    assert done.returncode == -signal.SIGKILL
    left = [name for name in os.listdir(f"{manifests.folder}/manifests") if name.startswith(".")]
    assert len(left) == 1
    assert manifests.numbers() == ([0, 1] if frozen else [0])
    assert manifests.freeze(1, files("other"), {}) is not frozen
    assert manifests.load(1).files["path"].to_pylist() == (["in/x"] if frozen else ["other"])


def test_a_process_killed_at_any_moment_leaves_whole_manifests(manifests):
    """The kill comes when a manifest is announced, so while the next one is being written."""
    script = """
        import sys
        import pyarrow as pa
        from oncelake.sources.arrivals.manifests import Manifests
        from oncelake.sources.arrivals.discovery import FILES

        count = 50_000
        table = pa.table({"path": [f"in/{i}" for i in range(count)], "size": [1] * count, "modified": [1] * count}, schema=FILES)
        for number in range(1_000):
            print(number, Manifests(sys.argv[1]).freeze(number, table, {}), flush=True)
    """
    arguments = [sys.executable, "-c", textwrap.dedent(script), manifests.folder]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        said = [process.stdout.readline() for _ in range(3)]
        process.kill()
    assert said == ["0 True\n", "1 True\n", "2 True\n"]
    numbers = manifests.numbers()
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= 3
    assert all(manifest.files.num_rows == 50_000 for manifest in manifests.load_all(numbers))


RUNNER = """
import sys
import pyarrow as pa
from oncelake.sources.arrivals.manifests import Manifests
from oncelake.sources.arrivals.discovery import FILES

manifests, table = Manifests(sys.argv[1]), pa.table({"path": ["a"], "size": [1], "modified": [1]}, schema=FILES)
print("ready", flush=True)
for line in sys.stdin:
    print(manifests.freeze(int(line), table, {"by": sys.argv[2]}), flush=True)
"""


def test_of_two_processes_that_freeze_a_number_at_once_one_wins(manifests):
    runners = [
        subprocess.Popen(
            [sys.executable, "-c", RUNNER, manifests.folder, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    assert [runner.stdout.readline() for runner in runners] == ["ready\n", "ready\n"]
    for number in range(40):
        for runner in runners:
            runner.stdin.write(f"{number}\n")
            runner.stdin.flush()
        won = [runner.stdout.readline() == "True\n" for runner in runners]
        assert sorted(won) == [False, True]
        assert manifests.load(number).facts["by"] == str(won.index(True))
    for runner in runners:
        runner.communicate()


def test_a_disk_without_links_takes_manifests_too(manifests, monkeypatch):
    def no_links(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    assert manifests.freeze(0, files("a"), {})
    assert not manifests.freeze(0, files("b"), {})
    assert manifests.load(0).files.equals(files("a"))


def many_files(count):
    rng, modified, times = random.Random(16), 1_700_000_000_000_000_000, []
    for _ in range(count):
        modified += rng.randrange(10_000, 90_000_000)
        times.append(modified)
    paths = [f"landing/2024-03-15/part-{number:08}.json" for number in range(count)]
    return pa.table({"path": paths, "size": [rng.randrange(180, 240) for _ in times], "modified": times}, schema=FILES)


def test_a_hundred_thousand_files_are_less_than_a_megabyte_of_text():
    table = many_files(100_000)
    text = encode_files(table)
    assert len(text) < 1_000_000
    assert text.isascii()
    assert json.loads(json.dumps(text)) == text
    assert decode_files(text).equals(table)


@pytest.mark.parametrize("table", [files(), files(*ODD), outcomes(files(*ODD)), outcomes(files("a"), "gone")])
def test_files_and_outcomes_survive_the_text(table):
    assert decode_files(encode_files(table)).equals(table)


def test_a_damaged_text_is_refused():
    text = encode_files(files(*ODD))
    for bad in ("", "rubbish", text[:-8], text[:100] + "AAAA" + text[104:]):
        with pytest.raises(ValueError):  # noqa: PT011  whatever base64 or parquet says
            decode_files(bad)


@pytest.fixture(scope="module")
def server():
    with s3_server() as address:
        yield address


@pytest.fixture
def front(server, monkeypatch):
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(conditional, "_found", {})
    with proxy(server) as made:
        made.folder = f"s3a://{new_bucket(server)}/lake/_oncelake/arrivals/order items"
        for name, value in {"ENDPOINT_URL": made.address, "REGION": REGION, "ACCESS_KEY_ID": "me"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        yield made


def test_an_object_store_freezes_a_number_once_and_lists_from_a_number_on(front):
    manifests = Manifests(front.folder)
    assert manifests.numbers() == []
    assert manifests.freeze(0, files(*ODD), {"path": "in"})
    assert not manifests.freeze(0, files("b"), {})
    assert manifests.load(0).files.equals(files(*ODD))
    for number in range(1, 4):
        assert manifests.freeze(number, files(f"f{number}"), {})
        manifests.record(number, outcomes(files(f"f{number}")))
    assert manifests.numbers() == [0, 1, 2, 3]
    assert manifests.numbers(after=1) == manifests.recorded(after=1) == [2, 3]
    assert manifests.outcomes(2).equals(outcomes(files("f2")))
    assert manifests.outcomes(0) is None
    with pytest.raises(ManifestUnreadable, match="does not exist"):
        manifests.load(9)


def test_a_manifest_whose_answer_was_lost_is_ours(front):
    front.once(LOST_ANSWER, lambda method, path: method == "PUT" and "/manifests/" in path)
    assert Manifests(front.folder).freeze(0, files("a"), {})
    assert front.hit
    assert not Manifests(front.folder).freeze(0, files("a"), {})


def test_a_store_without_conditional_puts_freezes_a_number_once_too(front):
    front.fault = lambda method, _, headers: UNCONDITIONAL if headers["If-None-Match"] else None
    manifests = Manifests(front.folder)
    assert manifests.freeze(0, files("a"), {})
    assert not manifests.freeze(0, files("b"), {})
    assert manifests.load(0).files.equals(files("a"))
