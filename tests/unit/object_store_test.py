"""Object stores without a JVM: what `storage:` may say, the options of every library, and stores without conditional puts."""

import hashlib
import json
import threading
import zipfile
from pathlib import Path

import pytest

import oncelake as once
from oncelake.declare.settings import FILE, read_settings
from oncelake.declare.store import StoreSettings
from oncelake.delta.lake_session import log_store_settings, store_problems
from oncelake.errors import BadSettings, OncelakeError
from oncelake.model.names import lake_path
from oncelake.operations.environment import find_environment
from oncelake.spark.jars import LOG_STORE, LOG_STORE_JAR
from oncelake.storage import conditional, lease, options
from support.s3 import INTERNAL_ERROR, LOST_ANSWER, NOT_IMPLEMENTED, REGION, UNCONDITIONAL, new_bucket, proxy, s3_server

SECRET = "planted/secret+key"
HERE = Path(__file__).parents[2]
STORAGE = """
lake: lake
profiles:
  s3:
    lake: s3a://bucket/lake
    storage:
      {}
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Nothing of the developer's own, and nothing of other tests."""
    import os

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(options, "_settings", {})
    monkeypatch.setattr(conditional, "_found", {})


@pytest.fixture(scope="module")
def server():
    with s3_server() as address:
        yield address


@pytest.fixture
def front(server, monkeypatch):
    """A proxy, and a lake behind it that every library reaches by the environment."""
    with proxy(server) as made:
        made.lake = f"s3a://{new_bucket(server)}/lake"
        for name, value in {"ENDPOINT_URL": made.address, "REGION": REGION, "ACCESS_KEY_ID": "me"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        yield made


def project(root, *lines):
    (root / FILE).write_text(STORAGE.format("\n      ".join(lines)))
    return root


def refused(root, profile="s3"):
    with pytest.raises(BadSettings) as caught:
        read_settings(root, profile)
    assert SECRET not in repr(caught.value.facts) + str(caught.value)
    return caught.value.facts


def test_secrets_come_from_the_environment_or_from_files(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKE_KEY", "AKIA")
    monkeypatch.setenv("LAKE_HOST", "store.example:9000")
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    lines = ("endpoint: https://${LAKE_HOST}", "path_style: true", "access_key: ${LAKE_KEY}", "secret_key: file:secret")
    found = read_settings(project(tmp_path, *lines), "s3")
    assert found.store == StoreSettings(
        endpoint="https://store.example:9000", path_style=True, access_key="AKIA", secret_key=SECRET
    )
    assert SECRET not in repr(found)
    assert SECRET not in repr(options.settle(found.store, {}))
    assert read_settings(tmp_path).store == StoreSettings()


def test_a_profile_changes_what_it_names_of_the_projects_storage(tmp_path):
    general = "storage: {region: eu-west-1, path_style: true}\n"
    (tmp_path / FILE).write_text(general + "profiles: {s3: {storage: {region: us-east-2}}, other: {}}\n")
    assert read_settings(tmp_path, "s3").store == StoreSettings(region="us-east-2", path_style=True)
    assert read_settings(tmp_path, "other").store == StoreSettings(region="eu-west-1", path_style=True)


@pytest.mark.parametrize("profile", ["s3", None])
@pytest.mark.parametrize("key", ["access_key", "secret_key", "session_token"])
def test_a_secret_that_is_written_out_is_refused_and_not_repeated(tmp_path, key, profile):
    found = refused(project(tmp_path, "region: us-east-1", f"{key}: {SECRET}"), profile)
    assert found["where"] == f"{FILE}:8"
    assert "${NAME}" in found["problem"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("secret_key: ${NOT_SET_ANYWHERE}", "NOT_SET_ANYWHERE is not set"),
        ("secret_key: file:nowhere", "cannot be read"),
        ("endpoint: https://me:planted/secret+key@host", "endpoint must look like"),
        ("endpoint: http://host:9000", "allow_http: true"),
        ("path_style: maybe", "true or false"),
        ("regio: x", "did you mean 'region'?"),
    ],
)
def test_what_storage_may_not_say(tmp_path, line, said):
    found = refused(project(tmp_path, line))
    assert said in found["problem"]
    assert found["where"] == f"{FILE}:7"


def test_a_secret_in_place_of_storage_or_among_spark_settings_is_refused_and_not_repeated(tmp_path):
    (tmp_path / FILE).write_text(f"storage: {SECRET}\n")
    assert "must be a mapping" in refused(tmp_path, None)["problem"]
    (tmp_path / FILE).write_text(f"spark:\n  spark.hadoop.fs.s3a.secret.key: {SECRET}\n")
    assert "`storage:`" in refused(tmp_path, None)["problem"]


@pytest.mark.parametrize(
    "setting",
    [
        f"spark.executorEnv.AWS_SECRET_ACCESS_KEY: {SECRET}",
        f"spark.executorEnv.AWS_ACCESS_KEY_ID: {SECRET}",
        f"spark.yarn.appMasterEnv.DB_PASSWORD: {SECRET}",
        f"spark.kubernetes.driverEnv.AWS_SESSION_TOKEN: {SECRET}",
        f"spark.driver.extraJavaOptions: -Xmx1g -Daws.secretKey={SECRET}",
        f"spark.executor.extraJavaOptions: '-Djavax.net.ssl.trustStorePassword={SECRET}'",
        f"spark.remote: 'sc://host:15002/;user_id=me;token={SECRET}'",
        f"spark.remote: 'https://user:{SECRET}@host'",
    ],
)
@pytest.mark.parametrize("start", ["spark:\n  ", "profiles:\n other:\n  spark:\n   "])
def test_a_secret_that_spark_would_show_is_refused_and_not_repeated(tmp_path, start, setting):
    (tmp_path / FILE).write_text(start + setting + "\n")
    assert refused(tmp_path, None)["where"] == f"{FILE}:{start.count(chr(10)) + 1}"


def test_settings_that_name_no_secret_are_kept(tmp_path, monkeypatch):
    kept = {
        "spark.executorEnv.AWS_WEB_IDENTITY_TOKEN_FILE": "/var/run/token",
        "spark.kubernetes.driver.secrets.keys": "/etc/secrets",
        "spark.executor.extraJavaOptions": "-Duser.timezone=UTC -XX:+UseG1GC",
        "spark.hadoop.fs.s3a.aws.credentials.provider": "org.example.Provider",
    }
    for remote in ("sc://127.0.0.1:15002", "sc://host/;use_ssl=true", "local[*]", "local"):
        (tmp_path / FILE).write_text(json.dumps({"spark": {**kept, "spark.remote": remote}}))
        assert read_settings(tmp_path).spark == {**kept, "spark.remote": remote}
    monkeypatch.setenv("CONNECT_TOKEN", SECRET)
    (tmp_path / FILE).write_text("spark: {spark.remote: 'sc://host:1/;token=${CONNECT_TOKEN}'}")
    assert read_settings(tmp_path).spark == {"spark.remote": f"sc://host:1/;token={SECRET}"}


@pytest.mark.parametrize("remote", ["http://host:15002", "spark://host:7077", "host:15002", "sc://", ""])
def test_an_address_that_is_not_of_connect_is_refused(tmp_path, remote):
    (tmp_path / FILE).write_text(f"lake: a\nspark:\n  spark.remote: '{remote}'\n")
    with pytest.raises(BadSettings, match=r"oncelake.yaml:3: spark.remote must look like sc://host:port"):
        read_settings(tmp_path)


@pytest.mark.parametrize("uri", [f"s3a://AKIA:{SECRET}@bucket/lake", f"s3://{SECRET.partition('/')[0]}@bucket/lake"])
def test_credentials_in_an_address_are_refused_and_not_repeated(tmp_path, uri):
    (tmp_path / FILE).write_text(f"lake: {uri}\n")
    assert "`storage:`" in refused(tmp_path, None)["problem"]
    for declare in (lambda: once.files(f"{uri}/*.json"), lambda: once.Project.of(lake=uri)):
        with pytest.raises(OncelakeError) as found:
            declare()
        assert "planted" not in str(found.value)
    for address in ("abfss://container@account.dfs.core.windows.net/lake", "hdfs://host:8020/lake@home"):
        assert lake_path(address) == address


def test_one_key_of_two_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("LAKE_KEY", "AKIA")
    assert "without secret_key" in refused(project(tmp_path, "access_key: ${LAKE_KEY}"))["problem"]


def test_every_library_gets_the_same():
    store = StoreSettings(
        "http://127.0.0.1:9000",
        "eu-west-1",
        allow_http=True,
        access_key="AKIA",
        secret_key=SECRET,
        session_token="token",
    )
    found = options.settle(store, {})
    spark = found.spark()
    assert spark["spark.hadoop.fs.s3a.endpoint"] == "http://127.0.0.1:9000"
    assert spark["spark.hadoop.fs.s3a.path.style.access"] == "true"
    assert spark["spark.hadoop.fs.s3a.connection.ssl.enabled"] == "false"
    assert spark["spark.hadoop.fs.s3a.endpoint.region"] == "eu-west-1"
    assert not {"AKIA", SECRET, "token"} & set(spark.values())
    assert found.delta_rs() == {
        "AWS_ACCESS_KEY_ID": "AKIA",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_SESSION_TOKEN": "token",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
        "AWS_REGION": "eu-west-1",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
    }
    arrow = found.pyarrow()
    assert (arrow["scheme"], arrow["endpoint_override"], arrow["secret_key"]) == ("http", "127.0.0.1:9000", SECRET)
    assert found.obstore()["config"]["secret_access_key"] == SECRET


def test_the_settings_of_a_profile_win_over_the_environment():
    environ = {
        "AWS_ENDPOINT_URL": "http://elsewhere",
        "AWS_REGION": "x",
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SESSION_TOKEN": "t",
    }
    assert options.settle(StoreSettings(), environ) == options.StoreOptions(
        "http://elsewhere", "x", path_style=True, access_key="a", session_token="t"
    )
    own = StoreSettings(endpoint="https://here", access_key="k", secret_key="s")
    # A token belongs to its keys.
    assert options.settle(own, environ) == options.StoreOptions(
        "https://here", "x", path_style=True, access_key="k", secret_key="s"
    )


def test_a_lake_and_what_else_its_project_names_are_reached_by_its_settings(monkeypatch):
    assert not options.reaches_s3("/local/lake")
    options.use_settings("s3a://one/lake", StoreSettings(region="r1"))
    options.use_settings("s3a://two/lake", StoreSettings(region="r2"))
    options.use_settings("/local/lake", StoreSettings())
    # A project on local disk may read files there.
    assert options.reaches_s3("/local/lake")
    paths = ("s3://one/lake/silver/orders", "s3a://one/lake", "s3n://two/lake/x", "s3a://landing/in", "s3a://one/lakes")
    assert [options.options_for(path).region for path in paths] == ["r1", "r1", "r2", "r2", "r2"]


def test_the_jar_in_the_package_is_built_from_the_committed_source():
    source = (HERE / "java" / f"{LOG_STORE.replace('.', '/')}.java").read_bytes()
    with zipfile.ZipFile(LOG_STORE_JAR) as jar:
        manifest = jar.read("META-INF/MANIFEST.MF").decode().replace("\r\n ", "")
        names = jar.namelist()
    assert f"Source-SHA-256: {hashlib.sha256(source).hexdigest()}\r\n" in manifest, "make log-store"
    assert names == ["META-INF/MANIFEST.MF", f"{LOG_STORE.replace('.', '/')}.class"]


def test_a_store_with_conditional_puts_is_found_out_by_trying_and_remembered(front, tmp_path):
    assert conditional.last_finding(front.lake).conditional is None
    assert conditional.try_conditional_puts(front.lake) == conditional.Finding(conditional=True)
    tried = len(front.requests)
    assert conditional.try_conditional_puts(front.lake).conditional
    assert len(front.requests) == tried
    conditional._found.clear()
    assert conditional.last_finding(front.lake) == conditional.Finding(conditional=True)
    assert not [path for _, path in front.requests[tried:] if "probes" in path]


@pytest.mark.parametrize(
    ("fault", "found", "why"),
    [(UNCONDITIONAL, False, "replaced"), (NOT_IMPLEMENTED, False, "501"), (LOST_ANSWER, True, "")],
)
def test_a_store_without_conditional_puts_is_found_out_and_a_lost_answer_is_not_one(front, fault, found, why):
    faults = [fault] * (1 if fault is LOST_ANSWER else 50)
    front.in_turn(faults, lambda method, path: method == "PUT" and "/probes/" in path)
    finding = conditional.try_conditional_puts(front.lake)
    assert front.hit
    assert finding.conditional is found
    assert why in finding.problem
    assert SECRET not in finding.problem


def test_a_store_that_fails_for_a_while_is_tried_again(front):
    front.in_turn([INTERNAL_ERROR] * 3, lambda method, _: method == "PUT")
    assert conditional.try_conditional_puts(front.lake).conditional
    assert len(front.hit) == 3


def test_our_log_store_is_used_where_it_is_safe_and_a_run_warns_where_it_is_not(front):
    assert set(log_store_settings(front.lake).values()) == {LOG_STORE}
    assert list(store_problems(front.lake)) == []
    conditional._found.clear()
    front.fault = lambda method, _, headers: UNCONDITIONAL if headers["If-None-Match"] else None
    assert log_store_settings(front.lake) == {}
    (problem,) = store_problems(front.lake)
    assert "safe for one driver at a time only: it replaced an object" in problem
    assert list(store_problems("/local/lake")) == []


def take_at_once(front, count):
    """Let so many runners take the same lease at the same time; return how many have it."""
    turns, start, taken = lease.lease_files(front.lake, "silver.orders"), threading.Barrier(count), []

    def take(me):
        start.wait()
        taken.append(turns.take(1, {"pid": me, "host": "here"}))

    threads = [threading.Thread(target=take, args=(me,)) for me in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(taken)


@pytest.mark.parametrize("fault", [UNCONDITIONAL, NOT_IMPLEMENTED])
def test_a_store_without_conditional_puts_has_one_holder_of_a_lease(front, fault):
    front.fault = lambda method, _, headers: fault if method == "PUT" and headers["If-None-Match"] else None
    assert conditional.try_conditional_puts(front.lake).conditional is False
    assert take_at_once(front, 4) == 1


def test_a_lease_whose_answer_was_lost_is_ours(front):
    front.once(LOST_ANSWER, lambda method, path: method == "PUT" and "/leases/" in path)
    assert take_at_once(front, 1) == 1
    assert front.hit


def test_status_says_where_a_project_runs_without_trying(front, tmp_path):
    (tmp_path / FILE).write_text(
        f"profiles: {{s3: {{lake: '{front.lake}', spark: {{spark.master: 'spark://h:7077'}}}}}}\n"
    )
    local, s3 = (find_environment(read_settings(tmp_path, profile)) for profile in (None, "s3"))
    assert (local.profile, local.store, local.several_drivers) == (None, "local disk", True)
    assert (s3.profile, s3.master, s3.several_drivers) == ("s3", "spark://h:7077", None)
    assert s3.store == f"S3 at {front.address}"
    assert "not known" in s3.lines()[1]
    assert {method for method, _ in front.requests} <= {"GET", "HEAD"}
    conditional.try_conditional_puts(front.lake)
    assert "safe (commits by conditional puts)" in find_environment(read_settings(tmp_path, "s3")).lines()[1]


def test_status_says_of_a_connect_server_that_nothing_relies_on_the_lock(front, tmp_path):
    spark = "{spark.remote: 'sc://127.0.0.1:15002'}"
    (tmp_path / FILE).write_text(
        f"profiles: {{disk: {{spark: {spark}}}, s3: {{lake: '{front.lake}', spark: {spark}}}}}\n"
    )
    conditional.try_conditional_puts(front.lake)
    disk, s3 = (find_environment(read_settings(tmp_path, profile)) for profile in ("disk", "s3"))
    assert (disk.several_drivers, disk.master) == (True, "sc://127.0.0.1:15002")
    assert "one server" in disk.why
    assert "a lock per table" not in disk.lines()[1]
    # The settings of the server are not known here.
    assert (s3.several_drivers, LOG_STORE in s3.why) == (None, True)


def test_the_tables_of_a_lake_are_written_and_read_through_the_same_settings(front, monkeypatch):
    from oncelake.delta.log import find_log
    from oncelake.delta.tables import Lake
    from oncelake.listeners.ledger import DeltaLedger, _append

    endpoint = front.address
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name)
    options.use_settings(
        front.lake, StoreSettings(endpoint, REGION, access_key="me", secret_key=SECRET, allow_http=True)
    )
    warned = []
    ledger = DeltaLedger(Lake(front.lake, "/"), warned.append)
    _append(ledger.path, [{"run": "r1", "outcome": "committed"}])
    assert find_log("the ledger", ledger.path).version == 0
    assert [entry["run"] for entry in ledger.entries()] == ["r1"]
    assert not warned


def test_json_of_an_environment_is_plain(tmp_path):
    (tmp_path / FILE).write_text("")
    document = find_environment(read_settings(tmp_path)).document()
    assert json.loads(json.dumps(document)) == document
    assert set(document) == {"profile", "master", "lake", "store", "several_drivers", "why"}
