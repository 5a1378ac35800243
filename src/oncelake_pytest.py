"""The pytest plugin: an idempotency test for any job, the proof of a pipeline, a warm session, a project in a sandbox.

It lies beside the package, not in it: pytest imports it at every start, and must not load oncelake or Spark for that.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from oncelake import Fingerprint, Project, Verdict
    from oncelake.declare.pipelines import Pipeline
    from oncelake.proving.proof import Prover

    Table = str | Path | Callable[[], DataFrame]
    Tables = Table | Iterable[Table] | Mapping[str, Table]

__all__ = ["assert_idempotent"]

MARKER = "exactly_once"
# Tests are many short jobs: the quick compiler and few tasks halve their cost.
FAST = {
    "spark.master": "local[2]",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}
_SHOWN = 5


def assert_idempotent(
    job: Callable[[], object], tables: Tables, *, exclude: Iterable[str] = (), times: int = 2
) -> None:
    """Run a job twice (or more) and fail unless every table holds after each run what it held after the first.

    A table is the path of a Delta table, or a function that returns a frame: `lambda: spark.table("silver.orders")`.
    Contents are compared, not counts. The columns in `exclude` are left out, in whichever tables have them.
    """
    __tracebackhide__ = True
    problem = _repeated(job, _Tables(_named(tables), _listed(exclude), FAST), times)
    if problem:
        raise AssertionError(problem)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    error_for = "folder of the oncelake project that once_project and prove work on"
    parser.getgroup("oncelake").addoption("--once-project", metavar="DIR", default=None, help=error_for)
    parser.addini("once_project", f"{error_for}; relative to the ini file", default=None)
    parser.addini("once_spark_settings", "settings of once_spark, a line each: key=value", type="linelist", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    error_for = (
        "run the test's body twice and compare the tables: a list of paths, or the name of a fixture that has them"
    )
    config.addinivalue_line("markers", f"{MARKER}(tables=None, exclude=(), times=2): {error_for}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have the fixture that a mark names set up with the others."""
    marker = item.get_closest_marker(MARKER)
    if marker is None:
        return
    if not isinstance(item, pytest.Function) or _is_async(item.obj):
        pytest.fail(f"{MARKER} is for plain test functions; use assert_idempotent here", pytrace=False)
    named = _Mark(*marker.args, **marker.kwargs).tables
    if isinstance(named, str):
        if not named.isidentifier():
            pytest.fail(f"{MARKER}: {named!r} is no fixture's name; give paths in a list: tables=[…]", pytrace=False)
        if named not in item.fixturenames:
            item.fixturenames.append(named)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Run the body of a marked test twice, and look at the tables after each time."""
    marker = item.get_closest_marker(MARKER)
    if marker is None or not isinstance(item, pytest.Function):
        return (yield)
    mark, body = _Mark(*marker.args, **marker.kwargs), item.obj
    tables = _Tables(mark.named(item.funcargs), _listed(mark.exclude), _settings(item.config))

    @wraps(body)
    def repeated(*args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        problem = _repeated(lambda: body(*args, **kwargs), tables, mark.times)
        if problem:
            pytest.fail(problem, pytrace=False)

    item.obj = repeated
    try:
        return (yield)
    finally:
        item.obj = body


@pytest.fixture(scope="session")
def once_spark(pytestconfig: pytest.Config) -> Iterator[SparkSession]:
    """One warm Spark session for all tests: the active one as it is, or one made for tests and stopped after them."""
    from pyspark.sql import SparkSession

    from oncelake.spark.session import open_session

    own = SparkSession.getActiveSession() is None
    session = open_session(_settings(pytestconfig))
    yield session
    if own:
        session.stop()


@pytest.fixture
def once_project(pytestconfig: pytest.Config, once_spark: SparkSession, tmp_path: Path) -> Project:
    """The project under test. Its pipelines write to a lake of the test's own; what else they read is read in place."""
    import oncelake as once

    return once.open(_folder(pytestconfig), spark=once_spark).in_sandbox(str(tmp_path / "once_lake"))


@pytest.fixture(name="assert_idempotent")
def _assert_idempotent(pytestconfig: pytest.Config) -> Callable[..., None]:
    """`assert_idempotent(job, tables, exclude=…, times=…)`: run a job twice and compare what it wrote."""

    def asserted(job: Callable[[], object], tables: Tables, *, exclude: Iterable[str] = (), times: int = 2) -> None:
        __tracebackhide__ = True
        problem = _repeated(job, _Tables(_named(tables), _listed(exclude), _settings(pytestconfig)), times)
        if problem:
            raise AssertionError(problem)

    return asserted


@pytest.fixture(scope="session")
def _provers() -> Iterator[Callable[[str | None], Prover]]:
    """One prover per level for all tests: starting one takes longer than a small proof."""
    from oncelake.proving.proof import Prover

    with ExitStack() as opened:
        yield cache(lambda level: opened.enter_context(Prover(level)))


@pytest.fixture
def prove(pytestconfig: pytest.Config, _provers: Callable[[str | None], Prover]) -> Callable[..., Verdict]:
    """`prove(pipeline, project=…, date=…, points=…, …)`: fail unless it is proven; the options are once.prove's."""

    def proven(pipeline: str | Pipeline, *, project: Project | str | Path | None = None, **options: Any) -> Verdict:
        __tracebackhide__ = True
        import oncelake as once

        opened = once.open(project or _folder(pytestconfig)) if not isinstance(project, once.Project) else project
        name = pipeline if isinstance(pipeline, str) else pipeline.name
        verdict = _provers(options.get("level")).prove(opened, name, **options)
        if verdict.verdict != "proven":
            story = verdict.violation.story if verdict.violation else f"the verdict is {verdict.verdict}"
            again = f"reproduce, in {opened.settings.root}: {verdict.reproduce}"
            pytest.fail(f"{verdict.job} is not proven. {story}\n{again}", pytrace=False)
        return verdict

    return proven


class _Mark(NamedTuple):
    """What stands in a mark."""

    tables: Any = None
    exclude: Iterable[str] = ()
    times: int = 2

    def named(self, fixtures: Mapping[str, Any]) -> Mapping[str, Table]:
        """The tables by name: those of the mark, of the fixture that it names, or of the project."""
        if self.tables is not None:
            return _named(fixtures[self.tables] if isinstance(self.tables, str) else self.tables)
        if "once_project" not in fixtures:
            pytest.fail(f"{MARKER}: name the tables, or let the test use once_project", pytrace=False)
        project: Project = fixtures["once_project"]
        targets = sorted({table for pipeline in project.pipelines.values() for table in pipeline.writes_tables})
        return _Targets({table: project.address.table(table) for table in targets})


class _Targets(dict[str, "Table"]):
    """The tables that a project may write. A test need not run all of it, so some may be absent."""


class _Snapshot(NamedTuple):
    """A table at one moment, to be read then and later; the identity it was made with, and its partition columns."""

    frame: Callable[[], DataFrame]
    made: str | None = None
    by: tuple[str, ...] = ()


class _Content(NamedTuple):
    """What a table holds at one moment."""

    snapshot: _Snapshot
    fingerprint: Fingerprint


class _Tables(NamedTuple):
    """The tables that are compared."""

    named: Mapping[str, Table]
    exclude: tuple[str, ...]
    settings: Mapping[str, str]

    def stats(self) -> dict[str, _Content | None]:
        """What every table holds now; None where there is none."""
        return {name: self._content(table) for name, table in self.named.items()}

    def _content(self, table: Table) -> _Content | None:
        import oncelake as once

        snapshot = self._snapshot(table)
        if snapshot is None:
            return None
        frame, excluded = snapshot.frame(), {column.casefold() for column in self.exclude}
        own = [column for column in frame.columns if column.casefold() in excluded]
        return _Content(snapshot, once.fingerprint(frame, exclude=own, by=snapshot.by))

    def _snapshot(self, table: Table) -> _Snapshot | None:
        from oncelake.delta.log import find_log
        from oncelake.spark.session import open_session

        if not isinstance(table, str | Path):
            frame = table().localCheckpoint()
            return _Snapshot(lambda: frame)
        log = find_log(str(table), str(table))
        if log is None:
            return None

        # The job may stop its session: the one that is there then is asked.
        def read() -> DataFrame:
            return open_session(self.settings).read.format("delta").option("versionAsOf", log.version).load(log.path)

        return _Snapshot(read, log.metadata.get("id"), log.partitioned_by)


def _repeated(job: Callable[[], object], tables: _Tables, times: int) -> str | None:
    """Run the job as often as asked; what is wrong with the tables, if anything is."""
    __tracebackhide__ = True
    if times < 2 or not tables.named:
        raise ValueError("nothing would be compared: name at least one table, and run the job at least twice")
    job()
    first = tables.stats()
    absent = [name for name, found in first.items() if found is None]
    if absent and (len(absent) == len(first) or not isinstance(tables.named, _Targets)):
        return f"after the first run there is no Delta table {', '.join(absent)}"
    used = {column.casefold() for found in first.values() if found for column in found.fingerprint.excluded}
    unused = [column for column in tables.exclude if column.casefold() not in used]
    if unused:
        raise ValueError(f"exclude: no table has a column {unused[0]!r}")
    for number in range(2, times + 1):
        try:
            job()
        except Exception as error:
            error.add_note(f"this was run {number} of {times} of the same job; run 1 ended well")
            raise
        problems = [_difference(name, first[name], now, number) for name, now in tables.stats().items()]
        told = [problem for problem in problems if problem]
        if told:
            return "\n".join(["the job is not idempotent", *told])
    return None


def _difference(name: str, first: _Content | None, now: _Content | None, number: int) -> str | None:
    """How a table differs from what it was after the first run, in a few lines."""
    if first is None or now is None:
        return None if first is now else f"{name}: {'made' if now else 'gone'} after run {number}"
    before, after = first.fingerprint, now.fingerprint
    if before == after:
        return None
    lines = [f"{name}: {_rows(before.rows)} after run 1, {_rows(after.rows)} after run {number}"]
    try:
        lines += _examples(first, now)
    except Exception as error:  # noqa: BLE001  a session stopped or files removed must not hide the finding
        lines.append(f"its content is another, but the rows of run 1 cannot be read any more: {type(error).__name__}")
    parts = before.differing(after)
    if parts:
        lines.append(f"in {', '.join(parts[:_SHOWN])}{f' and {len(parts) - _SHOWN:,} more' * (len(parts) > _SHOWN)}")
    return "\n  ".join(lines)


def _examples(first: _Content, now: _Content) -> list[str]:
    import oncelake as once

    if first.snapshot.made != now.snapshot.made:
        return ["its content is another, but the table was made anew: the rows of run 1 are gone"]
    found = once.differences(
        now.snapshot.frame(), first.snapshot.frame(), exclude=now.fingerprint.excluded, limit=_SHOWN
    )
    if found.columns:
        return ["other columns (left is the later run)", *found.columns]
    return [found.summary, *map(str, found.examples)]


def _rows(number: int) -> str:
    return f"{number:,} row{'s' * (number != 1)}"


def _named(tables: Tables) -> Mapping[str, Table]:
    """The tables by the name they are told by: their path, or the name of their function."""
    if isinstance(tables, Mapping):
        return tables
    listed: list[Table] = [tables] if isinstance(tables, str | Path) or callable(tables) else list(tables)
    return {_name(table, index): table for index, table in enumerate(listed)}


def _name(table: Table, index: int) -> str:
    if isinstance(table, str | Path):
        return str(table)
    return f"tables[{index}], {getattr(table, '__name__', type(table).__name__)}()"


def _listed(columns: Iterable[str]) -> tuple[str, ...]:
    return (columns,) if isinstance(columns, str) else tuple(columns)


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _settings(config: pytest.Config) -> dict[str, str]:
    """Settings of the session for tests, with the user's own on top."""
    found = {}
    for line in config.getini("once_spark_settings"):
        key, separator, value = line.partition("=")
        if not separator:
            raise pytest.UsageError(f"once_spark_settings: {line!r} is not key=value")
        found[key.strip()] = value.strip()
    return {**FAST, **found}


def _folder(config: pytest.Config) -> Path:
    """The project's folder: of the command line, of the ini file, or the root of the tests."""
    asked: str | None = config.getoption("once_project")
    declared: str | None = config.getini("once_project")
    if asked:
        folder = config.invocation_params.dir / asked
    elif declared:
        folder = (config.inipath.parent if config.inipath else config.rootpath) / declared
    else:
        folder = config.rootpath
    if not (folder / "oncelake.yaml").is_file():
        pytest.fail(f"there is no oncelake.yaml in {folder}: name the project with --once-project", pytrace=False)
    return folder
