"""On an object store `status`, `plan` and `history` list every log once and request every object once, and nothing else."""

import json
import threading
from collections import Counter
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from obstore.store import S3Store

import oncelake as once
from oncelake.delta.tables import Lake
from oncelake.errors import CorruptLog, LakeUnreachable
from oncelake.listeners.ledger import DeltaLedger
from oncelake.model.events import WorkEnded
from oncelake.model.intervals import Grid
from oncelake.model.markers import marker
from oncelake.model.work import Outcome, Work
from oncelake.storage import objects
from oncelake.storage.lease import LeaseFiles
from support.hand_written_logs import txn, write_commit
from support.s3 import ACCESS_KEY, REGION, SECRET_KEY, Fault, new_bucket, proxy, s3_server

TABLES, COMMITS = 8, 5
START = "2024-03-01"
GRID = Grid("day")
DAYS = list(GRID.cells(GRID.parse(START), GRID.parse("2024-03-06")))
NOW = GRID.parse("2024-03-08")
CONFIG = {"region": REGION, "access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY}


def declare(number):
    """Return a pipeline that reads the table before its own; the first reads one that no pipeline writes."""

    @once.pipeline(
        name=f"p{number}",
        every="day",
        start=START,
        reads=once.table(f"silver.t{number - 1}", time="at"),
        writes=once.replace_interval(f"silver.t{number}", time="at"),
    )
    def rows(source):
        return source

    return rows


def write_lake(root):
    """Write logs by hand, a commit a day with its pins, and a ledger with one failure."""
    for number in range(TABLES + 1):
        table, name = root / "silver" / f"t{number}", f"p{number}"
        for version, day in enumerate([None, *DAYS][:COMMITS]):
            pins = {"source": {"table": f"silver.t{number - 1}", "version": 0, "id": "made"}}
            facts = (
                {"pipeline": name, "slice": day.text, "generation": 1, "pins": pins, "attempt": "a"} if day else None
            )
            actions = [txn(marker(name, f"silver.t{number}", day, 1))] if day else []
            write_commit(
                table,
                version,
                *actions,
                {"add": {"path": f"f{version}", "size": 1, "partitionValues": {}}},
                facts=facts,
            )
    ledger = DeltaLedger(Lake(str(root), str(root)), pytest.fail)
    for day, outcome in zip(DAYS[-3:], ("committed", "committed", "failed"), strict=True):
        work = Work("p1", "silver.t1", day, 1, marker("p1", "silver.t1", day, 1))
        ledger.on(WorkEnded("run", (Outcome(work, outcome),), attempted=True))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A lake on S3 behind a proxy that counts: the proxy, the address of the lake, and the files in it."""
    root = tmp_path_factory.mktemp("lake")
    write_lake(root)
    with s3_server() as server, proxy(server) as front:
        bucket = new_bucket(server)
        direct = S3Store(bucket, config={**CONFIG, "endpoint": server}, client_options={"allow_http": True})
        for path in root.rglob("*"):
            if path.is_file():
                direct.put(f"lake/{path.relative_to(root)}", path.read_bytes())
        for number, host in ((99_999_999, "former"), (100_000_000, "present")):
            holder = {"pid": 1, "host": host, "since": "now", "until": 9_999_999_999}
            direct.put(f"lake/_oncelake/leases/silver.t3/{number:08}.json", json.dumps(holder).encode())
        LeaseFiles(direct, "lake/_oncelake/leases/silver.t4").end(7)
        yield front, f"s3a://{bucket}/lake", direct


@pytest.fixture
def requests(store, monkeypatch):
    front = store[0]
    environment = {"AWS_ENDPOINT_URL": front.address, "AWS_ALLOW_HTTP": "true", "AWS_REGION": REGION}
    environment |= {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    front.requests.clear()
    return lambda: [told(method, path) for method, path in front.requests]


def told(method, path):
    """Return what a request is for: a listing with its prefix, or the key of an object."""
    found = urlsplit(path)
    query = parse_qs(found.query)
    kind = "LIST" if method == "GET" and "list-type" in query else method
    return kind, query["prefix"][0] if kind == "LIST" else unquote(found.path).partition("/lake/")[2]


def project(lake):
    return once.Project.of(*map(declare, range(1, TABLES + 1)), lake=lake)


def of_tables(found):
    """Return the requests for the tables, without those for the ledger and the leases."""
    return [(kind, path) for kind, path in found if "_oncelake" not in path]


def assert_bounded(found, tables, commits=COMMITS):
    assert {kind for kind, _ in found} <= {"LIST", "GET"}
    assert [each for each, count in Counter(found).items() if count > 1] == []
    counts = Counter(kind for kind, _ in of_tables(found))
    assert counts == {"LIST": tables, "GET": tables * commits}


def test_status_requests_each_log_once(store, requests):
    found = project(store[1]).status(now=NOW)
    assert [(each.done, each.missing) for each in found] == [(4, 3)] * TABLES
    assert found[0].failed
    assert_bounded(requests(), TABLES + 1)
    ours = Counter(kind for kind, path in requests() if "_oncelake" in path)
    # A listing of the leases, and the one that was not ended; the ledger's listing, its commits and the file that may have a failure.
    assert ours == {"LIST": 2, "GET": 1 + 3 + 1}
    assert "present" in found[2].running


def test_a_long_ledger_is_read_from_its_checkpoint(store, requests, tmp_path):
    _, lake, direct = store
    ledger = DeltaLedger(Lake(str(tmp_path), str(tmp_path)), pytest.fail)
    for _ in range(59):
        ledger.on(
            WorkEnded(
                "run", (Outcome(Work("p1", "silver.t1", DAYS[0], 1, marker("p1", "t", DAYS[0], 1)), "committed"),)
            )
        )
    for path in tmp_path.rglob("*"):
        if path.is_file():
            direct.put(f"lake/long/{path.relative_to(tmp_path)}", path.read_bytes())
    assert DeltaLedger(Lake(f"{lake}/long", "/"), pytest.fail).failures() == []
    found = Counter(kind for kind, _ in requests())
    # The checkpoint of every twentieth commit, and the commits after it; no file can have a failure.
    assert found["LIST"] == 1
    assert found["GET"] <= 1 + 20


def test_plan_requests_each_log_once(store, requests):
    plan = project(store[1]).plan(now=NOW)
    assert len(plan.to_do) == TABLES
    assert_bounded(requests(), TABLES + 1)
    # Whether the store takes ranges is asked once.
    assert [path for _, path in requests() if "_oncelake" in path] == ["_oncelake/store.json"]


def test_the_files_of_an_interval_are_listed_once(store, requests):
    _, lake, direct = store
    for day in DAYS:
        direct.put(f"lake/landing/{day.start:%Y-%m-%d}/a.json", b"{}")

    @once.pipeline(
        name="p1",
        every="day",
        start=START,
        reads=once.files(f"{lake}/landing/{{start:%Y-%m-%d}}/*.json", schema="id long"),
        writes=once.replace_interval("silver.t1", time="at"),
    )
    def rows(source):
        return source

    (status,) = once.Project.of(rows, lake=lake).status(now=NOW)
    listed = sorted(path for kind, path in requests() if "landing" in path)
    assert listed == [f"lake/landing/{day.start:%Y-%m-%d}/" for day in DAYS[: COMMITS - 1]]
    assert len(status.stale) == COMMITS - 1  # nobody pinned these files


def test_commits_are_read_in_parallel(store, requests):
    front, lake, _ = store
    seen, another, alone = set(), threading.Event(), []

    def wait_for_another(_, path, __):
        """Answer a request when one for another commit is under way."""
        if path.endswith(".json"):
            seen.add(path)
            if len(seen) > 1:
                another.set()
            alone.extend([] if another.wait(20) else [path])

    front.fault = wait_for_another
    try:
        assert len(project(lake).history("silver.t3")) == COMMITS
    finally:
        front.calm()
    assert alone == []
    assert len(seen) == COMMITS


def test_history_requests_one_log_once(store, requests):
    assert len(project(store[1]).history("silver.t3")) == COMMITS
    assert_bounded(requests(), 1)


def test_a_second_look_lists_and_reads_only_what_is_new(store, requests):
    opened = project(store[1])
    opened.status("p1", now=NOW)
    store[0].requests.clear()
    opened.status("p1", now=NOW)
    expected = [("LIST", "lake/silver/t0/_delta_log/"), ("LIST", "lake/silver/t1/_delta_log/")]
    assert sorted(of_tables(requests())) == expected


def test_a_store_that_refuses_is_an_error_of_ours(store, requests):
    front, lake, _ = store
    front.fault = lambda *_: Fault(403, "AccessDenied")
    try:
        for ask in (lambda p: p.status(now=NOW), lambda p: p.plan(now=NOW), lambda p: p.history("silver.t3")):
            with pytest.raises(LakeUnreachable) as found:
                ask(project(lake))
            assert "AccessDenied" in found.value.facts["problem"] or "403" in found.value.facts["problem"]
        # Without a ledger there is a status, and a warning.
        front.fault = lambda _, path, __: Fault(403, "AccessDenied") if "ledger" in path else None
        assert any("ledger" in text for text in project(lake).status(now=NOW)[0].warnings)
    finally:
        front.calm()


def test_a_commit_that_is_gone_and_a_table_that_is_none(store, requests):
    _, lake, direct = store
    direct.put("lake/silver/gap/_delta_log/00000000000000000001.json", b"{}")
    opened = once.Project.of(lake=lake).lake
    with pytest.raises(CorruptLog):
        opened.table("silver.gap").log()
    assert opened.table("silver.absent").log() is None
    assert {kind for kind, _ in requests()} == {"LIST"}


def test_names_with_signs_that_stores_encode(store, requests):
    _, lake, direct = store
    commit = b'{"txn":{"appId":"x","version":1}}'
    direct.put(f"lake/odd folder=1%20+ä/a/b/_delta_log/{0:020}.json", commit)
    assert once.Project.of(lake=f"{lake}/odd folder=1%20+ä").lake.table("a.b").log().recorded("x") == 1


@pytest.mark.parametrize("installed", [True, False], ids=["obstore", "pyarrow"])
def test_a_log_is_the_same_with_and_without_obstore(store, requests, monkeypatch, installed):
    _, lake, direct = store
    monkeypatch.setattr(objects, "is_object_store", lambda _: installed)
    opened = project(lake)
    found = opened.status(now=NOW)
    assert [(each.done, each.missing, len(each.failed)) for each in found[:2]] == [(4, 3, 1), (4, 3, 0)]
    table = opened.lake.table("silver.again")
    assert table.log() is None
    path = "lake/silver/again/_delta_log/{:020}.json".format
    for version in range(2):
        direct.put(path(version), f'{{"txn":{{"appId":"app-{version}","version":1}}}}'.encode())
        assert (table.log().version, table.log().recorded(f"app-{version}")) == (version, 1)
    # Dropped and recreated: another file by the same name. (pyarrow tells files of one second by their size only.)
    direct.put(path(1), b'{"txn":{"appId":"another","version":1}}')
    assert set(table.log().markers) == {"app-0", "another"}
    direct.delete([path(version) for version in range(2)])
    assert table.log() is None
