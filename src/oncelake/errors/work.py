"""What can go wrong with a work."""

from __future__ import annotations

from oncelake.errors.base import OncelakeError, Retry


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
    says = "{whose} has no column {column!r}{did_you_mean}; it has: {columns}"
    hint = "mend {where}, then: oncelake run {pipeline}"


class WrongTimeType(WorkFailed):
    """A time column that is not a time, or too coarse for the grid."""

    code = "wrong_time_type"
    says = "column {column!r} of {whose} is {type}, and an interval of a {every} needs {needs}"
    hint = "cast it in {where}, then: oncelake run {pipeline}"


class WrongReturnType(WorkFailed, TypeError):
    """The function returned no frame for a target."""

    code = "wrong_return_type"
    says = "{where}: {pipeline} returned {got} where {expected} was expected"
    hint = "mend {where}, then: oncelake run {pipeline}"


class WrongColumns(WorkFailed):
    """The frame does not fit the target."""

    code = "wrong_columns"
    says = "the frame for {target} does not fit the table: {difference}"
    hint = "mend {where}, then: oncelake run {pipeline}"


class RowsOutsideSlice(WorkFailed):
    """Rows outside the slice; writing them would change rows another work owns."""

    code = "rows_outside_slice"
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


class CannotRestate(WorkFailed):
    """A work that cannot be restated: what it added the first time is not known any more."""

    code = "cannot_restate"
    says = "{target} is added to by {pipeline}, so {slice} cannot be done again: it would be added twice"
    hint = "oncelake history {target}"


class EmptyOverwrite(WorkFailed):
    """A reload would replace rows by none."""

    code = "empty_overwrite"
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


class TableBusy(OncelakeError):
    """Another runner has this work, or the table it writes; nothing of ours was written."""

    code = "busy"
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
