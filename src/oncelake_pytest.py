"""The pytest plugin: an idempotency test for any job, the proof of a pipeline, a warm session, a project in a sandbox.

The module is beside the package, not in it: pytest imports it at every start, and that must not load oncelake or Spark.
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
    from pyspark.sql import SparkSession

    from oncelake import Project, Verdict
    from oncelake.declare.pipelines import Pipeline
    from oncelake.proving.proof import Prover
    from oncelake.testing import assert_idempotent
    from oncelake.testing.idempotency import Table, Tables

__all__ = ["assert_idempotent"]

MARKER = "exactly_once"


def __getattr__(name: str) -> Any:
    """Resolve `assert_idempotent` on first use."""
    if name != "assert_idempotent":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from oncelake import testing

    return testing.assert_idempotent


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the command-line and ini options."""
    about = "folder of the oncelake project that once_project and prove use"
    parser.getgroup("oncelake").addoption("--once-project", metavar="DIR", default=None, help=about)
    parser.addini("once_project", f"{about}; relative to the ini file", default=None)
    parser.addini(
        "once_spark_settings", "Spark settings of once_spark, one key=value per line", type="linelist", default=[]
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    about = (
        "run the test's body twice and compare the tables: a list of paths, or the name of a fixture that returns them"
    )
    config.addinivalue_line("markers", f"{MARKER}(tables=None, exclude=(), times=2): {about}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Set up the fixture that a mark names together with the others."""
    marker = item.get_closest_marker(MARKER)
    if marker is None:
        return
    if not isinstance(item, pytest.Function) or _is_async(item.obj):
        pytest.fail(f"{MARKER} works on plain test functions only; use assert_idempotent here", pytrace=False)
    named = _Mark(*marker.args, **marker.kwargs).tables
    if isinstance(named, str):
        if not named.isidentifier():
            pytest.fail(f"{MARKER}: {named!r} is not a fixture name; pass paths in a list: tables=[…]", pytrace=False)
        if named not in item.fixturenames:
            item.fixturenames.append(named)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Run the body of a marked test twice, and compare the tables after each run."""
    marker = item.get_closest_marker(MARKER)
    if marker is None or not isinstance(item, pytest.Function):
        return (yield)
    from oncelake.testing.idempotency import ComparedTables, as_tuple, run_and_compare

    mark, body = _Mark(*marker.args, **marker.kwargs), item.obj
    tables = ComparedTables(mark.named(item.funcargs), as_tuple(mark.exclude), _settings(item.config))

    @wraps(body)
    def repeated(*args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        problem = run_and_compare(lambda: body(*args, **kwargs), tables, mark.times)
        if problem:
            pytest.fail(problem, pytrace=False)

    item.obj = repeated
    try:
        return (yield)
    finally:
        item.obj = body


@pytest.fixture(scope="session")
def once_spark(pytestconfig: pytest.Config) -> Iterator[SparkSession]:
    """Return one warm Spark session for all tests: the active one, or a new one that is stopped after them."""
    from pyspark.sql import SparkSession

    from oncelake.spark.jars import cached_kafka_jars
    from oncelake.spark.session import open_session

    own = SparkSession.getActiveSession() is None
    session = open_session(_settings(pytestconfig), cached_kafka_jars())
    yield session
    if own:
        session.stop()


@pytest.fixture
def once_project(pytestconfig: pytest.Config, once_spark: SparkSession, tmp_path: Path) -> Project:
    """Return the project under test. Its pipelines write to a temporary lake; other inputs are read in place."""
    import oncelake as once

    return once.open(_folder(pytestconfig), spark=once_spark).in_sandbox(str(tmp_path / "once_lake"))


@pytest.fixture(name="assert_idempotent")
def _assert_idempotent(pytestconfig: pytest.Config) -> Callable[..., None]:
    """`assert_idempotent(job, tables, exclude=…, times=…)`: run a job twice and compare its tables."""

    def check(job: Callable[[], object], tables: Tables, *, exclude: Iterable[str] = (), times: int = 2) -> None:
        __tracebackhide__ = True
        from oncelake import testing

        testing.assert_idempotent(job, tables, exclude=exclude, times=times, settings=_settings(pytestconfig))

    return check


@pytest.fixture(scope="session")
def _provers() -> Iterator[Callable[[str | None], Prover]]:
    """Return one prover per level for all tests, because starting one takes longer than a small proof."""
    from oncelake.proving.proof import Prover

    with ExitStack() as stack:
        yield cache(lambda level: stack.enter_context(Prover(level)))


@pytest.fixture
def prove(pytestconfig: pytest.Config, _provers: Callable[[str | None], Prover]) -> Callable[..., Verdict]:
    """`prove(pipeline, project=…, date=…, points=…, …)`: fail unless proven; the options are those of once.prove."""

    def check(pipeline: str | Pipeline, *, project: Project | str | Path | None = None, **options: Any) -> Verdict:
        __tracebackhide__ = True
        import oncelake as once

        opened = once.open(project or _folder(pytestconfig)) if not isinstance(project, once.Project) else project
        name = pipeline if isinstance(pipeline, str) else pipeline.name
        verdict = _provers(options.get("level")).prove(opened, name, **options)
        if verdict.verdict != "proven":
            story = verdict.violation.story if verdict.violation else f"the verdict is {verdict.verdict}"
            command = f"reproduce, in {opened.settings.root}: {verdict.reproduce}"
            pytest.fail(f"{verdict.job} is not proven. {story}\n{command}", pytrace=False)
        return verdict

    return check


class _Mark(NamedTuple):
    """The arguments of a mark."""

    tables: Any = None
    exclude: Iterable[str] = ()
    times: int = 2

    def named(self, fixtures: Mapping[str, Any]) -> Mapping[str, Table]:
        """Return the tables by name: those of the mark, of the fixture that it names, or of the project."""
        from oncelake.testing.idempotency import ProjectTables, tables_by_name

        if self.tables is not None:
            return tables_by_name(fixtures[self.tables] if isinstance(self.tables, str) else self.tables)
        if "once_project" not in fixtures:
            pytest.fail(f"{MARKER}: name the tables, or let the test use once_project", pytrace=False)
        project: Project = fixtures["once_project"]
        targets = sorted({table for pipeline in project.pipelines.values() for table in pipeline.writes_tables})
        return ProjectTables({table: project.lake.table(table).path for table in targets})


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _settings(config: pytest.Config) -> dict[str, str]:
    """Return the settings of the session for tests, overridden by the user's settings."""
    found = {}
    for line in config.getini("once_spark_settings"):
        key, separator, value = line.partition("=")
        if not separator:
            raise pytest.UsageError(f"once_spark_settings: {line!r} is not key=value")
        found[key.strip()] = value.strip()
    from oncelake.testing.idempotency import FAST

    return {**FAST, **found}


def _folder(config: pytest.Config) -> Path:
    """Return the project's folder: from the command line, from the ini file, or the root of the tests."""
    option: str | None = config.getoption("once_project")
    declared: str | None = config.getini("once_project")
    if option:
        folder = config.invocation_params.dir / option
    elif declared:
        folder = (config.inipath.parent if config.inipath else config.rootpath) / declared
    else:
        folder = config.rootpath
    if not (folder / "oncelake.yaml").is_file():
        pytest.fail(f"there is no oncelake.yaml in {folder}: name the project with --once-project", pytrace=False)
    return folder
