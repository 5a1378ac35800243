"""Errors of a single work."""

from __future__ import annotations

from oncelake.errors.base import OncelakeError, Retry


class WorkFailed(OncelakeError):
    """The work was not written. The table still has its previous rows."""

    code = "failed"
    splittable = True


class SourceMissing(WorkFailed, FileNotFoundError):
    """An interval has no input files. They may not have arrived yet."""

    code = "source_missing"
    retry = Retry.HELPS
    says = "no input files for {slice}: {path} does not exist or is empty"
    hint = 'retry when the files have arrived: oncelake run {pipeline}; if an interval may have none, declare missing="empty"'


class SourceUnreadable(WorkFailed):
    """A folder or file of the input cannot be read, so its files are unknown."""

    code = "source_unreadable"
    retry = Retry.HELPS
    says = "cannot read the input at {path}: {problem}"
    hint = "make {path} readable, then run the same command again"


class SourceChanged(WorkFailed):
    """Input files changed during the read, or after another target of the same slice was written from them."""

    code = "source_changed"
    retry = Retry.HELPS
    says = "the input files at {path} changed since they were listed for {slice}"
    hint = "retry when the upload is complete: oncelake run {pipeline}"


class VersionGone(SourceChanged):
    """A pinned version of a source table can no longer be read: vacuumed, cleaned up, or dropped."""

    code = "version_gone"
    retry = Retry.USELESS
    says = "version {version} of {table}, which {slice} reads, is gone: {problem}"
    hint = "read the table as it is now: oncelake run {pipeline} --accept-new-input"


class WrongHeader(WorkFailed):
    """The header of a CSV file does not name the columns that are read from it."""

    code = "wrong_header"
    says = "the header of {path} has the columns {found}, expected {expected}"
    hint = "fix the file or the schema in {where}, then run: oncelake run {pipeline}"


class TableMissing(WorkFailed, FileNotFoundError):
    """A source table does not exist."""

    code = "table_missing"
    retry = Retry.HELPS
    says = "table {table} does not exist: {path} has no Delta log"
    hint = "oncelake status"


class NotDelta(WorkFailed):
    """The folder exists and is not a Delta table."""

    code = "not_delta"
    says = "{path} is not a Delta table: it contains files ({example}) and no _delta_log"
    hint = 'use another table name, or convert the folder: spark.sql("CONVERT TO DELTA parquet.`{path}`")'


class CorruptLog(WorkFailed):
    """The Delta log is not readable."""

    code = "corrupt_log"
    says = "cannot read the Delta log of {table}: {path}: {problem}"
    hint = "restore {path} from a backup; oncelake does not write to the table until its log is readable"


class ColumnMissing(WorkFailed):
    """A declared column does not exist."""

    code = "column_missing"
    says = "{whose} has no column {column!r}{did_you_mean}; its columns: {columns}"
    hint = "fix {where}, then run: oncelake run {pipeline}"


class WrongTimeType(WorkFailed):
    """The time column is not a time, or is too coarse for the intervals."""

    code = "wrong_time_type"
    says = "column {column!r} of {whose} has type {type}; every={every} needs {needs}"
    hint = "cast the column in {where}, then run: oncelake run {pipeline}"


class WrongReturnType(WorkFailed, TypeError):
    """The function did not return a DataFrame for each target."""

    code = "wrong_return_type"
    says = "{where}: {pipeline} returned {got}, expected {expected}"
    hint = "fix {where}, then run: oncelake run {pipeline}"


class WrongColumns(WorkFailed):
    """The columns of the DataFrame do not match the table."""

    code = "wrong_columns"
    says = "the DataFrame does not match the table {target}: {difference}"
    hint = "fix {where}, then run: oncelake run {pipeline}"


class RowsOutsideSlice(WorkFailed):
    """Rows are outside the slice. Writing them would change rows that another work owns."""

    code = "rows_outside_slice"
    says = "rows for {target} are outside {slice}: {examples}"
    hint = "filter these rows in {where}, or process a wider range, then run: oncelake run {pipeline}"


class NullKeys(WorkFailed):
    """Rows have a null key. A null matches no row, so every run would insert them again."""

    code = "null_keys"
    says = "rows for {target} have a null in {keys}: {examples}"
    hint = 'filter these rows in {where}, or declare null_keys="quarantine", then run: oncelake run {pipeline}'


class RepeatedKeys(WorkFailed):
    """A key occurs more than once where the pattern needs one row per key."""

    code = "repeated_keys"
    says = "the DataFrame for {target} has duplicate keys ({keys}): {examples}"
    hint = "group by {keys} in {where}, then run: oncelake run {pipeline}"


class CannotRestate(WorkFailed):
    """The pattern adds rows or values and cannot tell which ones an earlier generation added."""

    code = "cannot_restate"
    says = "cannot restate {slice}: {pipeline} appends to {target}, so its rows would be written twice"
    hint = "name the pipelines to restate without {pipeline}, then compute its table again: oncelake rebuild {target}"


class BatchesNotRedone(WorkFailed):
    """Files that arrived were ingested in batches, which are not rebuilt, and restated only where the rows of a file are known."""

    code = "batches_not_redone"
    says = "cannot {verb} {what}: {pipeline} ingests files as they arrive, and {problem}"
    hint = "{way}go back and ingest the files again that are still there: oncelake restore {what} --to 0, then oncelake run {pipeline}"


class NullTimes(WorkFailed):
    """Rows of a source table have no time, so they belong to no interval, and the declaration refuses them."""

    code = "null_times"
    splittable = False
    says = "{table} has {count} without {time}: they belong to no interval, and no work would read them"
    hint = 'correct these rows of {table}, or declare null_time="report" in {where}, then run: oncelake run {pipeline}'


class PinnedInputGone(WorkFailed):
    """The rest of an interrupted work must be written from the input of its finished targets, and that is gone."""

    code = "pinned_input_gone"
    splittable = False
    says = "{target} of {slice} is to be written from the same input as {sibling}, and that is gone: {problem}"
    hint = (
        "write all targets from the input as it is now: oncelake restate {pipeline}{options}, "
        "or only {target}: oncelake run {pipeline}{options} --accept-new-input"
    )


class OvertakenInputGone(WorkFailed):
    """A work must be applied once more, because another commit had overtaken it, and the input it was made from is gone."""

    code = "overtaken_input_gone"
    splittable = False
    says = (
        "{slice} must be applied to {target} once more, because another commit came between its read and version {version}, "
        "and its input is gone: {problem}"
    )
    hint = (
        "apply the input as it is now: oncelake run {pipeline} --accept-new-input, "
        "or replay all works: oncelake rebuild {target}"
    )


class PartlyDone(WorkFailed):
    """Part of an interval was written in intervals of another grid, and the pattern cannot write that part again."""

    code = "partly_done"
    says = (
        "{slice} of {target} is partly done in intervals of another grid, and {pipeline} cannot write that part twice"
    )
    hint = (
        "replay all works on the present grid: oncelake rebuild {target}; "
        "or declare the former every= and timezone= in {pipeline} until the interval is done"
    )


class OtherTimezone(WorkFailed):
    """Rows around an interval were written by the dates of another time zone, and dates do not say their zone."""

    code = "other_timezone"
    says = (
        "{slice} of {target} lies where rows have dates of another time zone: "
        "to replace it alone would remove or repeat rows of its neighbours"
    )
    hint = "oncelake rebuild {target}"


class CannotRestore(OncelakeError):
    """A table whose features cannot be restored together with its markers, or a version whose files are gone."""

    code = "cannot_restore"
    says = "{target} cannot be restored to version {version} together with its markers: {problem}"
    hint = "choose a later version, or restate the slices that should change: oncelake history {target}"


class CannotRebuild(OncelakeError):
    """A table that holds works which no pipeline of the project can replay."""

    code = "cannot_rebuild"
    says = "{target} cannot be rebuilt: it holds works of {unknown}, which no pipeline of this project can replay"
    hint = "declare those pipelines (or formerly=), or write them again with once.write: oncelake history {target}"


class TombstonesUnknown(WorkFailed):
    """The log no longer shows whether an attempt that prepared tombstones was committed."""

    code = "tombstones_unknown"
    splittable = False
    says = "{target}: the log no longer shows whether {work} was committed by the attempt that prepared its tombstones"
    hint = "rebuild the table, or remove {path} if no delete can be late any more, then run: oncelake run {pipeline}"


class OutOfOrder(WorkFailed):
    """The result of the pattern depends on the order of intervals, and a newer interval is done."""

    code = "out_of_order"
    splittable = False
    says = (
        "{slice} of {target} is older than {newer}, which is done, and {pipeline} must write {target} in the order of time: "
        "a key in both would get the older value"
    )
    hint = (
        "if no key occurs in two intervals, declare any_order=True in {where}; otherwise run: oncelake rebuild {target}"
    )


class EmptyOverwrite(WorkFailed):
    """An overwrite without rows would empty the table."""

    code = "empty_overwrite"
    says = "refused to overwrite {target}: the DataFrame has no rows and the table has some"
    hint = "if this is intended, declare overwrite(…, allow_empty=True) in {where}, then run: oncelake run {pipeline}"


class NotPartitioned(WorkFailed):
    """The table has other partition columns than `replace_partitions` declares."""

    code = "not_partitioned"
    says = "{target} is partitioned by {found}, but replace_partitions declares {declared}"
    hint = "declare by={found} or use replace_interval in {where}, then run: oncelake run {pipeline}"


class FunctionFailed(WorkFailed):
    """The user's function raised an exception."""

    code = "function_failed"
    retry = Retry.UNKNOWN
    says = "{where}: {pipeline} raised {problem}"
    hint = "fix {where}, then run: oncelake run {pipeline}"


class WriteFailed(WorkFailed):
    """Spark or Delta rejected the write. The log confirms that nothing was committed."""

    code = "write_failed"
    retry = Retry.UNKNOWN
    says = "cannot write {target}: {problem}"
    hint = "oncelake run {pipeline}"


class Blocked(OncelakeError):
    """An upstream pipeline has not finished the slice that this work reads."""

    code = "blocked"
    outcome = "blocked"
    retry = Retry.HELPS
    says = "{pipeline} reads {table}, and {upstream} has not finished {slice}"
    hint = "oncelake run {upstream} {pipeline}"


class EarlierNotDone(Blocked):
    """The result of the pattern depends on the order of intervals, and an earlier interval is not done."""

    code = "earlier_not_done"
    says = "{pipeline} writes {target} in the order of time, and {earlier} is not done"
    hint = "oncelake run {pipeline}"


class TableBusy(OncelakeError):
    """Another runner holds the table or this work. This runner wrote nothing."""

    code = "busy"
    outcome = "busy"
    exit_code = 4
    retry = Retry.HELPS
    says = "another runner is writing {target} ({holder})"
    hint = "{again}"


class OutcomeUnknown(OncelakeError):
    """After an error the log was not readable, so the outcome of the commit is unknown. A retry is safe."""

    code = "outcome_unknown"
    retry = Retry.UNKNOWN
    says = "unknown whether {target} was written: {problem}; reading its log failed too: {log_problem}"
    hint = "oncelake run {pipeline}"


class ManifestsMissing(WorkFailed):
    """The targets have batches whose manifests are gone, so it is not known which files they took in."""

    code = "manifests_missing"
    says = "{folder} has no manifest of batch {number}, which the targets of {pipeline} have: the ingested files are unknown"
    hint = "restore the folder from a backup, or read the manifests back from the commits: oncelake files {pipeline} --rebuild"


class ManifestUnreadable(WorkFailed):
    """A manifest, or what is known of ingested files, cannot be read."""

    code = "manifest_unreadable"
    says = "cannot read {path}: {problem}"
    hint = "restore {path} from a backup, or read it back from the commits: oncelake files {pipeline} --rebuild"


class SchemaFrozen(WorkFailed):
    """Files have columns or types that the pinned schema does not have, and the declaration says that it is frozen."""

    code = "schema_frozen"
    says = "{slice} of {pipeline} does not fit the frozen schema: {problem}; nothing of it was read"
    hint = "declare the columns in {where}, or another evolution=, then run: oncelake run {pipeline}"


class RowsUnaccounted(WorkFailed):
    """The rows of a file do not add up, so some would be lost or doubled. Nothing is committed."""

    code = "rows_unaccounted"
    retry = Retry.HELPS
    says = "{path} has {read} rows, and {written} were read and {quarantined} quarantined in {slice}"
    hint = "retry: oncelake run {pipeline}; if it happens again, report it with the file"
