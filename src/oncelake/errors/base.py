"""Every error oncelake raises, in one place.

    OncelakeError
    ├── Misuse                      exit 2: found before anything is read or written
    │   ├── BadSettings             oncelake.yaml cannot be used
    │   ├── BadDeclaration          a pipeline, source or pattern is declared wrongly
    │   ├── LoadFailed              a project file raised while it was loaded
    │   ├── DuplicatePipeline       two pipelines share a name
    │   ├── CyclicPipelines         pipelines read each other's tables in a circle
    │   ├── OwnedTwice              two pipelines would replace each other's rows
    │   ├── UnknownPipeline         no pipeline of that name
    │   ├── UnknownTarget           no pipeline writes that table
    │   ├── BadRange                a date or range that cannot be meant
    │   ├── BadVersion              a version that a table has not got
    │   ├── NeverDone               a restatement of what was never done
    │   └── NotEmpty                init would write over something
    ├── WorkFailed                  exit 1: this work was not written
    │   ├── SourceMissing           the files of an interval are not there
    │   ├── SourceChanged           files changed while they were read
    │   ├── TableMissing            a table to read does not exist
    │   ├── NotDelta                the folder holds something else
    │   ├── CorruptLog              a Delta log that cannot be read
    │   ├── ColumnMissing           a declared column is not in the frame
    │   ├── WrongTimeType           a time column that is not a time
    │   ├── NoFrame                 the function returned no frame for a target
    │   ├── WrongColumns            the frame does not fit the target
    │   ├── StrayRows               rows outside the slice
    │   ├── NullKeys                rows without a key
    │   ├── RepeatedKeys            a key more than once where it may be there once
    │   ├── NotAgain                a work that cannot be restated
    │   ├── EmptyReload             a reload would replace rows by none
    │   ├── NotPartitioned          replace_partitions on a table partitioned otherwise
    │   ├── FunctionFailed          the user's function raised
    │   └── WriteFailed             Spark or Delta refused the write
    ├── Blocked                     exit 1: something it reads is not done
    ├── Lost                        exit 4: another runner has it, safe to retry
    ├── OutcomeUnknown              exit 1: the log could not be asked after an error
    ├── LockUnavailable             exit 1: the folder of locks cannot be used
    ├── SparkUnavailable            exit 1: no Java, or Delta's jars cannot be had
    ├── ProverUnavailable           exit 1: a level of proof needs what this machine has not
    └── NothingToProve              exit 1: the clean run, which every other is compared with, did not end well

Each takes facts and writes its own message from them; tests look at `code` and `facts`, never at prose.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar


class Retry(Enum):
    """What doing the same again would bring."""

    HELPS = "helps"
    USELESS = "useless"
    UNKNOWN = "unknown"


class OncelakeError(Exception):
    """Something oncelake can explain: what, where, what is committed, and the command to type next."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    retry: ClassVar[Retry] = Retry.USELESS
    says: ClassVar[str] = "{message}"
    hint: ClassVar[str] = ""

    def __init__(self, **facts: Any) -> None:
        """Keep the facts and write the message from them."""
        self.facts = facts
        self.message = self.says.format(**facts)
        self.next = self.hint.format(**facts)
        super().__init__(self.message)

    def __str__(self) -> str:
        """Say what happened and, where there is one, the command to type next."""
        return f"{self.message}\n  next: {self.next}" if self.next else self.message


class Misuse(OncelakeError, ValueError):
    """A fault of usage or configuration, found before anything is read or written."""

    code = "misuse"
    exit_code = 2


class BadSettings(Misuse):
    """`oncelake.yaml` cannot be used."""

    code = "bad_settings"
    says = "{where}: {problem}"
    hint = "mend {where}, then: oncelake plan"


class BadDeclaration(Misuse):
    """A pipeline, source or pattern is declared wrongly."""

    code = "bad_declaration"
    says = "{where}: {problem}"
    hint = "mend {where}, then: oncelake plan"


class LoadFailed(Misuse):
    """A project file raised while it was loaded."""

    code = "load_failed"
    says = "{where}: loading the project failed: {problem}"
    hint = "mend {where}, then: oncelake plan"


class DuplicatePipeline(Misuse):
    """Two pipelines share a name, so their markers would be the same."""

    code = "duplicate_pipeline"
    says = "two pipelines are named {name!r}: {first} and {second}"
    hint = 'give one of them another name (name="…"), then: oncelake plan'


class CyclicPipelines(Misuse):
    """Pipelines read each other's tables in a circle."""

    code = "cyclic_pipelines"
    says = "pipelines read each other's tables in a circle: {circle}"
    hint = "let one of them read another table, then: oncelake plan"


class OwnedTwice(Misuse):
    """Two pipelines would replace each other's rows."""

    code = "owned_twice"
    says = "{target} is written by {first} and by {second}: they would replace each other's rows"
    hint = 'let each declare its share (within={{"column": "value"}}) or its own target, then: oncelake plan'


class UnknownPipeline(Misuse):
    """No pipeline of that name."""

    code = "unknown_pipeline"
    says = "there is no pipeline {name!r}{guess}; there are: {known}"
    hint = "oncelake status"


class UnknownTarget(Misuse):
    """No pipeline writes that table."""

    code = "unknown_target"
    says = "no pipeline writes {name!r}{guess}; targets are: {known}"
    hint = "oncelake status"


class BadRange(Misuse):
    """A date or range that cannot be meant."""

    code = "bad_range"
    says = "{problem}"
    hint = "{next}"


class BadVersion(Misuse):
    """A version that a table has not got."""

    code = "bad_version"
    says = "{target} has no version {version}; its newest is {newest}"
    hint = "oncelake history {target}"


class NeverDone(Misuse):
    """A restatement of what was never done."""

    code = "never_done"
    says = "nothing of {slice} of {pipeline} was ever done, so there is nothing to restate"
    hint = "oncelake plan {pipeline}"


class NotEmpty(Misuse):
    """`init` would write over something."""

    code = "not_empty"
    says = "{path} is not empty; init writes into a new or empty folder only"
    hint = "oncelake init {path}/pipelines-project"


class WorkFailed(OncelakeError):
    """This work was not written; what was there before is still there."""

    code = "failed"


class SourceMissing(WorkFailed, FileNotFoundError):
    """The files of an interval are not there; they may not have arrived yet."""

    code = "source_missing"
    retry = Retry.HELPS
    says = "no files at {path} for {slice}: the folder is absent or empty"
    hint = 'oncelake run {pipeline} again when they have arrived, or declare missing="empty" if none is fine'


class SourceChanged(WorkFailed):
    """Files changed while they were read, or after another target of the same work was written from them."""

    code = "source_changed"
    retry = Retry.HELPS
    says = "the files at {path} changed while {slice} was read from them"
    hint = "oncelake run {pipeline} again when they have settled"


class TableMissing(WorkFailed, FileNotFoundError):
    """A table to read does not exist."""

    code = "table_missing"
    retry = Retry.HELPS
    says = "table {table} does not exist: there is no Delta log in {path}"
    hint = "oncelake status"


class NotDelta(WorkFailed):
    """The folder holds something else than a Delta table."""

    code = "not_delta"
    says = "{path} is not a Delta table: it holds files ({example}) but no _delta_log"
    hint = 'name another table, or convert it: spark.sql("CONVERT TO DELTA parquet.`{path}`")'


class CorruptLog(WorkFailed):
    """A Delta log that cannot be read."""

    code = "corrupt_log"
    says = "the Delta log of {table} cannot be read: {path}: {problem}"
    hint = "restore {path} from a copy; nothing is written until it can be read"


class ColumnMissing(WorkFailed):
    """A declared column is not in the frame."""

    code = "column_missing"
    says = "{whose} has no column {column!r}{guess}; it has: {columns}"
    hint = "mend {where}, then: oncelake run {pipeline}"


class WrongTimeType(WorkFailed):
    """A time column that is not a time, or too coarse for the grid."""

    code = "wrong_time_type"
    says = "column {column!r} of {whose} is {type}, and an interval of a {every} needs {needs}"
    hint = "cast it in {where}, then: oncelake run {pipeline}"


class NoFrame(WorkFailed, TypeError):
    """The function returned no frame for a target."""

    code = "no_frame"
    says = "{where}: {pipeline} returned {got} where {expected} was expected"
    hint = "mend {where}, then: oncelake run {pipeline}"


class WrongColumns(WorkFailed):
    """The frame does not fit the target."""

    code = "wrong_columns"
    says = "the frame for {target} does not fit the table: {difference}"
    hint = "mend {where}, then: oncelake run {pipeline}"


class StrayRows(WorkFailed):
    """Rows outside the slice; writing them would change rows another work owns."""

    code = "stray_rows"
    says = "rows for {target} lie outside {slice}: {examples}"
    hint = "filter them in {where} or widen the slice, then: oncelake run {pipeline}"


class NullKeys(WorkFailed):
    """Rows without a key; they would match nothing and be put in again by every run."""

    code = "null_keys"
    says = "rows for {target} have no key ({keys}): {examples}"
    hint = 'filter them in {where} or declare null_keys="quarantine", then: oncelake run {pipeline}'


class RepeatedKeys(WorkFailed):
    """A key more than once where it may be there once."""

    code = "repeated_keys"
    says = "the frame for {target} has a key more than once ({keys}): {examples}"
    hint = "group by all of {keys} in {where}, then: oncelake run {pipeline}"


class NotAgain(WorkFailed):
    """A work that cannot be restated: what it added the first time is not known any more."""

    code = "not_again"
    says = "{target} is added to by {pipeline}, so {slice} cannot be done again: it would be added twice"
    hint = "oncelake history {target}"


class EmptyReload(WorkFailed):
    """A reload would replace rows by none."""

    code = "empty_reload"
    says = "the reload of {target} has no rows, and the table has some: refused"
    hint = "if none is right: overwrite(…, allow_empty=True) in {where}, then: oncelake run {pipeline}"


class NotPartitioned(WorkFailed):
    """`replace_partitions` on a table that is partitioned otherwise."""

    code = "not_partitioned"
    says = "{target} is partitioned by {found}, replace_partitions was declared by {declared}"
    hint = "declare by={found} or use replace_interval in {where}, then: oncelake run {pipeline}"


class FunctionFailed(WorkFailed):
    """The user's function raised."""

    code = "function_failed"
    retry = Retry.UNKNOWN
    says = "{where}: {pipeline} raised {problem}"
    hint = "mend {where}, then: oncelake run {pipeline}"


class WriteFailed(WorkFailed):
    """Spark or Delta refused the write; the log says that nothing of it landed."""

    code = "write_failed"
    retry = Retry.UNKNOWN
    says = "writing {target} failed: {problem}"
    hint = "oncelake run {pipeline}"


class Blocked(OncelakeError):
    """Something this work reads is not done."""

    code = "blocked"
    retry = Retry.HELPS
    says = "{upstream} is not done for {slice}, and {pipeline} reads its table {table}"
    hint = "oncelake run {upstream} {pipeline}"


class Lost(OncelakeError):
    """Another runner has this work, or the table it writes; nothing of ours was written."""

    code = "lost"
    exit_code = 4
    retry = Retry.HELPS
    says = "{target} is being written by another runner ({holder})"
    hint = "{again}"


class OutcomeUnknown(OncelakeError):
    """After an error the log could not be asked whether the commit landed. Running again is safe."""

    code = "outcome_unknown"
    retry = Retry.UNKNOWN
    says = "it is not known whether {target} was written: {problem}; then its log could not be read: {log_problem}"
    hint = "oncelake run {pipeline}"


class LockUnavailable(OncelakeError):
    """The folder of locks cannot be used."""

    code = "lock_unavailable"
    retry = Retry.HELPS
    says = "the lock of {target} cannot be taken: {problem}"
    hint = "oncelake status, once {folder} is a folder that can be written"


class SparkUnavailable(OncelakeError):
    """No Java, or Delta's jars cannot be had."""

    code = "spark_unavailable"
    retry = Retry.HELPS
    says = "Spark cannot start: {problem}"
    hint = "{next}"


class ProverUnavailable(OncelakeError):
    """A level of proof needs something that is not there."""

    code = "prover_unavailable"
    says = "this cannot be proven here: {problem}"
    hint = "{next}"


class NothingToProve(OncelakeError):
    """The clean run, which every other is compared with, did not end well."""

    code = "nothing_to_prove"
    retry = Retry.UNKNOWN
    says = "the clean run of {job} in the sandbox failed, so there is nothing to compare with: {problem}"
    hint = "{next}"
