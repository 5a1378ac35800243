"""Usage and configuration errors, detected before anything is read or written."""

from __future__ import annotations

from oncelake.errors.base import OncelakeError


class UsageError(OncelakeError, ValueError):
    """A usage or configuration error, detected before anything is read or written."""

    code = "usage"
    exit_code = 2


class BadSettings(UsageError):
    """`oncelake.yaml` is invalid."""

    code = "bad_settings"
    says = "{where}: {problem}"
    hint = "fix {where}, then run: oncelake plan"


class BadDeclaration(UsageError):
    """The declaration of a pipeline, source or pattern is invalid."""

    code = "bad_declaration"
    says = "{where}: {problem}"
    hint = "fix {where}, then run: oncelake plan"


class LoadFailed(UsageError):
    """A project file raised an exception at import."""

    code = "load_failed"
    says = "{where}: cannot load the project: {problem}"
    hint = "fix {where}, then run: oncelake plan"


class DuplicatePipeline(UsageError):
    """Two pipelines have the same name, so their markers would collide."""

    code = "duplicate_pipeline"
    says = "two pipelines are named {name!r}: {first} and {second}"
    hint = 'rename one of them (name="…"), then run: oncelake plan'


class CyclicPipelines(UsageError):
    """The pipelines depend on each other in a cycle."""

    code = "cyclic_pipelines"
    says = "the pipelines depend on each other in a cycle: {circle}"
    hint = "remove one of these reads, then run: oncelake plan"


class OverlappingWriters(UsageError):
    """Two pipelines would overwrite each other's rows."""

    code = "overlapping_writers"
    says = "both {first} and {second} write {target}: each would overwrite the rows of the other"
    hint = 'declare disjoint rows (within={{"column": "value"}}) or separate targets, then run: oncelake plan'


class RenamedPipeline(UsageError):
    """The target contains works of a pipeline that is not declared: under a new name they would be added again."""

    code = "renamed_pipeline"
    says = (
        "{target} contains works of {former}, which the project does not declare: if {pipeline} was renamed, "
        "it would add the same rows again"
    )
    hint = (
        'declare formerly={spelled} in {where} so that these works count as done, or keep the name with name="{first}"; '
        "if {pipeline} is another pipeline, declare formerly=[]"
    )


class MovedTable(UsageError):
    """The target contains works that name another target: the table was moved or copied, and they would be added again."""

    code = "moved_table"
    says = (
        "{target} contains works that were written to {former}: the table was moved or copied, "
        "and {pipeline} would add the same rows again"
    )
    hint = (
        "move the table back to {former} and declare that target in {where}, or let {pipeline} write a new table, "
        "then run: oncelake plan"
    )


class OtherProject(UsageError):
    """The target contains works of a pipeline of the same name that another project wrote."""

    code = "other_project"
    says = "{target} contains works of {pipeline} that project {other} wrote; this project is {project}"
    hint = 'rename the pipeline in {where} (name="…"), or, if this is that project, set id: {other} in oncelake.yaml'


class UnknownPipeline(UsageError):
    """No pipeline has that name."""

    code = "unknown_pipeline"
    says = "unknown pipeline {name!r}{did_you_mean}; known pipelines: {known}"
    hint = "oncelake status"


class NotInCatalog(UsageError):
    """A table that is read by its name in the catalog is not there."""

    code = "not_in_catalog"
    says = "the session's catalog has no Delta table for {table}: {problem}"
    hint = "create or register the table, or read it by its name in the lake, then run: oncelake plan"


class UnknownTarget(UsageError):
    """No pipeline reads or writes that table."""

    code = "unknown_target"
    says = "unknown table {name!r}{did_you_mean}; known tables: {known}"
    hint = "oncelake status"


class BadRange(UsageError):
    """The date or range is invalid."""

    code = "bad_range"
    says = "{problem}"
    hint = "{next}"


class BadVersion(UsageError):
    """The table does not have that version, or it is the version that it has now."""

    code = "bad_version"
    says = "{target} cannot be restored to version {version}; it has the versions before {newest}, which is the newest"
    hint = "oncelake history {target}"


class NothingToRestate(UsageError):
    """Nothing of the range is in the targets, so it cannot be restated."""

    code = "nothing_to_restate"
    says = "nothing to restate: {pipeline} has not processed any of {slice}, or a later reload replaced its rows"
    hint = "oncelake plan {pipeline}"


class NotEmpty(UsageError):
    """`init` would overwrite existing files."""

    code = "not_empty"
    says = "{path} is not empty; init needs a new or empty folder"
    hint = "oncelake init {path}/pipelines-project"


class NotArriving(UsageError):
    """The pipeline is not driven by files that arrive."""

    code = "not_arriving"
    says = "{pipeline} ({where}) is not driven by files that arrive"
    hint = "oncelake status"


class NotAStream(UsageError):
    """The pipeline does not read a stream."""

    code = "not_a_stream"
    says = "{pipeline} ({where}) does not read a stream"
    hint = "oncelake status"
