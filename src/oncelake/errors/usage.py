"""Faults of usage and configuration, found before anything is read or written."""

from __future__ import annotations

from oncelake.errors.base import OncelakeError


class UsageError(OncelakeError, ValueError):
    """A fault of usage or configuration, found before anything is read or written."""

    code = "usage"
    exit_code = 2


class BadSettings(UsageError):
    """`oncelake.yaml` cannot be used."""

    code = "bad_settings"
    says = "{where}: {problem}"
    hint = "mend {where}, then: oncelake plan"


class BadDeclaration(UsageError):
    """A pipeline, source or pattern is declared wrongly."""

    code = "bad_declaration"
    says = "{where}: {problem}"
    hint = "mend {where}, then: oncelake plan"


class LoadFailed(UsageError):
    """A project file raised while it was loaded."""

    code = "load_failed"
    says = "{where}: loading the project failed: {problem}"
    hint = "mend {where}, then: oncelake plan"


class DuplicatePipeline(UsageError):
    """Two pipelines share a name, so their markers would be the same."""

    code = "duplicate_pipeline"
    says = "two pipelines are named {name!r}: {first} and {second}"
    hint = 'give one of them another name (name="…"), then: oncelake plan'


class CyclicPipelines(UsageError):
    """Pipelines read each other's tables in a circle."""

    code = "cyclic_pipelines"
    says = "pipelines read each other's tables in a circle: {circle}"
    hint = "let one of them read another table, then: oncelake plan"


class OverlappingWriters(UsageError):
    """Two pipelines would replace each other's rows."""

    code = "overlapping_writers"
    says = "{target} is written by {first} and by {second}: they would replace each other's rows"
    hint = 'let each declare its share (within={{"column": "value"}}) or its own target, then: oncelake plan'


class UnknownPipeline(UsageError):
    """No pipeline of that name."""

    code = "unknown_pipeline"
    says = "there is no pipeline {name!r}{did_you_mean}; there are: {known}"
    hint = "oncelake status"


class UnknownTarget(UsageError):
    """No pipeline writes that table."""

    code = "unknown_target"
    says = "no pipeline writes {name!r}{did_you_mean}; targets are: {known}"
    hint = "oncelake status"


class BadRange(UsageError):
    """A date or range that cannot be meant."""

    code = "bad_range"
    says = "{problem}"
    hint = "{next}"


class BadVersion(UsageError):
    """A version that a table has not got."""

    code = "bad_version"
    says = "{target} has no version {version}; its newest is {newest}"
    hint = "oncelake history {target}"


class NothingToRestate(UsageError):
    """A restatement of what was never done."""

    code = "nothing_to_restate"
    says = "nothing of {slice} of {pipeline} was ever done, so there is nothing to restate"
    hint = "oncelake plan {pipeline}"


class NotEmpty(UsageError):
    """`init` would write over something."""

    code = "not_empty"
    says = "{path} is not empty; init writes into a new or empty folder only"
    hint = "oncelake init {path}/pipelines-project"
