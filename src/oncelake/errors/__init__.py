"""All errors that oncelake raises.

    OncelakeError
    ├── UsageError                  exit 2: detected before anything is read or written
    │   ├── BadSettings             oncelake.yaml is invalid
    │   ├── BadDeclaration          the declaration of a pipeline, source or pattern is invalid
    │   ├── LoadFailed              a project file raised an exception at import
    │   ├── DuplicatePipeline       two pipelines have the same name
    │   ├── CyclicPipelines         the pipelines depend on each other in a cycle
    │   ├── OverlappingWriters      two pipelines would overwrite each other's rows
    │   ├── RenamedPipeline         the target contains works of a pipeline that is not declared
    │   ├── MovedTable              the target contains works that name another target
    │   ├── OtherProject            another project wrote works of the same pipeline name
    │   ├── UnknownPipeline         no pipeline has that name
    │   ├── UnknownTarget           no pipeline reads or writes that table
    │   ├── NotInCatalog            the session's catalog has no such Delta table
    │   ├── BadRange                the date or range is invalid
    │   ├── BadVersion              the table does not have that version, or has it now
    │   ├── NothingToRestate        the range was never processed
    │   ├── NotArriving             the pipeline is not driven by files that arrive
    │   ├── NotAStream              the pipeline does not read a stream
    │   └── NotEmpty                init would overwrite existing files
    ├── WorkFailed                  exit 1: the work was not written
    │   ├── SourceMissing           an interval has no input files
    │   ├── SourceUnreadable        an input folder or file is not readable
    │   ├── SourceChanged           input files changed during the read
    │   │   └── VersionGone         a pinned version of a source table was vacuumed
    │   ├── WrongHeader             the header of a CSV file has other columns
    │   ├── TableMissing            a source table does not exist
    │   ├── NotDelta                the folder is not a Delta table
    │   ├── CorruptLog              the Delta log is not readable
    │   ├── ColumnMissing           a declared column does not exist
    │   ├── WrongTimeType           the time column has the wrong type
    │   ├── WrongReturnType         the function did not return a DataFrame for each target
    │   ├── WrongColumns            the columns do not match the table
    │   ├── RowsOutsideSlice        rows are outside the slice of the work
    │   ├── NullKeys                rows have a null key
    │   ├── NullTimes               rows of a source table have no time, and that is refused
    │   ├── RepeatedKeys            a key occurs more than once
    │   ├── BatchesNotRedone        batches of files that arrived are not restated or rebuilt
    │   ├── CannotRestate           an append cannot be restated
    │   ├── PinnedInputGone         the input of an interrupted work's finished targets is gone
    │   ├── OvertakenInputGone      the input of a work that must be applied once more is gone
    │   ├── ManifestsMissing        manifests of ingested batches are gone
    │   ├── ManifestUnreadable      a manifest of ingested files cannot be read
    │   ├── SchemaFrozen            files do not fit a frozen schema
    │   ├── RowsUnaccounted         the rows of a file do not add up
    │   ├── OtherCheckpoint         a stream of that name wrote from another checkpoint
    │   ├── OlderCheckpoint         an older copy of a stream's checkpoint was put back
    │   ├── CheckpointLost          the targets have batches of a stream whose checkpoint is gone
    │   │   ├── CheckpointBehind    the checkpoint does not fit what the targets have
    │   │   └── CheckpointCopied    the checkpoint belongs to another stream
    │   ├── CheckpointMisplaced     the folder for checkpoints is one in which they would get lost
    │   ├── CheckpointTorn          a file of a checkpoint is not complete
    │   ├── StreamChanged           a stream has another source, or keeps other state, than its checkpoint
    │   ├── StreamFailed            a query stopped outside of a commit
    │   ├── StateDamaged            the state of a stream is gone or cannot be read
    │   ├── StreamNotRedone         batches of a stream are not restated or rebuilt
    │   ├── MessagesLost            messages were removed before they were read
    │   ├── UpstreamRecreated       a table that is read as a stream was dropped and created again
    │   ├── UpstreamRewritten       a table that is read by its appended rows was changed otherwise
    │   ├── UpstreamVacuumed        files of a table that is read as a stream were removed
    │   ├── BatchesUnknown          a target lacks batches whose offsets are no longer known
    │   ├── StateAhead              a target lacks batches that the state of its stream contains
    │   ├── CannotRestart           a restart would lose or double rows
    │   ├── RestartUnfinished       a restart from the beginning was interrupted
    │   ├── StreamsNotRemote        streams do not run over Spark Connect
    │   ├── DecodedBefore           messages that another target has cannot be decoded any more
    │   ├── MessagesGone            messages of a retry are gone from Kafka, and some targets lack them
    │   ├── CannotRetry             the pattern of a stream cannot write single messages later
    │   ├── PartlyDone              an interval is partly done in intervals of another grid
    │   ├── OtherTimezone           rows around an interval have the dates of another time zone
    │   ├── TombstonesUnknown       the log no longer shows whether tombstones count
    │   ├── OutOfOrder              a newer interval is done, and the result depends on the order
    │   ├── EmptyOverwrite          an overwrite would empty the table
    │   ├── NotPartitioned          the table has other partition columns than declared
    │   ├── FunctionFailed          the user's function raised an exception
    │   └── WriteFailed             Spark or Delta rejected the write
    ├── CannotRestore               exit 1: a table whose features cannot be restored with its markers
    ├── CannotRebuild               exit 1: a table with works that no pipeline can replay
    ├── Blocked                     exit 1: an upstream pipeline is not done
    │   └── EarlierNotDone          an earlier interval is not done, and the result depends on the order
    ├── TableBusy                   exit 4: another runner holds the table, safe to retry
    ├── OutcomeUnknown              exit 1: the log was not readable after an error
    ├── LockUnavailable             exit 1: the lock folder is not writable
    ├── LakeUnreachable             exit 1: the store of a lake does not answer; the run ends
    ├── SparkUnavailable            exit 1: Java or the Delta jars are missing
    ├── KafkaNotStarted             exit 1: the broker for development did not start
    ├── DeltaMissing                exit 1: the Spark session has no Delta; the run ends
    ├── WorkersDiffer               exit 1: the cluster's Python workers differ; the run ends
    ├── SparkLost                   exit 1: Spark's JVM died twice; the run ends
    │   └── ServerLost              the Spark Connect server did not answer, twice
    ├── MachineFailed               exit 1: the disk is full or cannot be written; the run ends
    ├── ProverUnavailable           exit 1: this machine lacks a requirement of the proof
    └── NothingToProve              exit 1: the reference run of the proof failed

An error is raised with facts and formats its message from them. Tests assert on `code` and `facts`, never on prose.
"""

from oncelake.errors.base import OncelakeError, Retry
from oncelake.errors.environment import (
    DeltaMissing,
    KafkaNotStarted,
    LakeUnreachable,
    LockUnavailable,
    MachineFailed,
    NothingToProve,
    ProverUnavailable,
    ServerLost,
    SparkLost,
    SparkUnavailable,
    WorkersDiffer,
)
from oncelake.errors.streams import (
    BatchesUnknown,
    CannotRestart,
    CannotRetry,
    CheckpointBehind,
    CheckpointCopied,
    CheckpointLost,
    CheckpointMisplaced,
    CheckpointTorn,
    DecodedBefore,
    MessagesGone,
    MessagesLost,
    OlderCheckpoint,
    OtherCheckpoint,
    RestartUnfinished,
    StateAhead,
    StateDamaged,
    StreamChanged,
    StreamFailed,
    StreamNotRedone,
    StreamsNotRemote,
    UpstreamRecreated,
    UpstreamRewritten,
    UpstreamVacuumed,
)
from oncelake.errors.usage import (
    BadDeclaration,
    BadRange,
    BadSettings,
    BadVersion,
    CyclicPipelines,
    DuplicatePipeline,
    LoadFailed,
    MovedTable,
    NotArriving,
    NotAStream,
    NotEmpty,
    NothingToRestate,
    NotInCatalog,
    OtherProject,
    OverlappingWriters,
    RenamedPipeline,
    UnknownPipeline,
    UnknownTarget,
    UsageError,
)
from oncelake.errors.work import (
    BatchesNotRedone,
    Blocked,
    CannotRebuild,
    CannotRestate,
    CannotRestore,
    ColumnMissing,
    CorruptLog,
    EarlierNotDone,
    EmptyOverwrite,
    FunctionFailed,
    ManifestsMissing,
    ManifestUnreadable,
    NotDelta,
    NotPartitioned,
    NullKeys,
    NullTimes,
    OtherTimezone,
    OutcomeUnknown,
    OutOfOrder,
    OvertakenInputGone,
    PartlyDone,
    PinnedInputGone,
    RepeatedKeys,
    RowsOutsideSlice,
    RowsUnaccounted,
    SchemaFrozen,
    SourceChanged,
    SourceMissing,
    SourceUnreadable,
    TableBusy,
    TableMissing,
    TombstonesUnknown,
    VersionGone,
    WorkFailed,
    WriteFailed,
    WrongColumns,
    WrongHeader,
    WrongReturnType,
    WrongTimeType,
)

__all__ = [
    "BadDeclaration",
    "BadRange",
    "BadSettings",
    "BadVersion",
    "BatchesNotRedone",
    "BatchesUnknown",
    "Blocked",
    "CannotRebuild",
    "CannotRestart",
    "CannotRestate",
    "CannotRestore",
    "CannotRetry",
    "CheckpointBehind",
    "CheckpointCopied",
    "CheckpointLost",
    "CheckpointMisplaced",
    "CheckpointTorn",
    "ColumnMissing",
    "CorruptLog",
    "CyclicPipelines",
    "DecodedBefore",
    "DeltaMissing",
    "DuplicatePipeline",
    "EarlierNotDone",
    "EmptyOverwrite",
    "FunctionFailed",
    "KafkaNotStarted",
    "LakeUnreachable",
    "LoadFailed",
    "LockUnavailable",
    "MachineFailed",
    "ManifestUnreadable",
    "ManifestsMissing",
    "MessagesGone",
    "MessagesLost",
    "MovedTable",
    "NotAStream",
    "NotArriving",
    "NotDelta",
    "NotEmpty",
    "NotInCatalog",
    "NotPartitioned",
    "NothingToProve",
    "NothingToRestate",
    "NullKeys",
    "NullTimes",
    "OlderCheckpoint",
    "OncelakeError",
    "OtherCheckpoint",
    "OtherProject",
    "OtherTimezone",
    "OutOfOrder",
    "OutcomeUnknown",
    "OverlappingWriters",
    "OvertakenInputGone",
    "PartlyDone",
    "PinnedInputGone",
    "ProverUnavailable",
    "RenamedPipeline",
    "RepeatedKeys",
    "RestartUnfinished",
    "Retry",
    "RowsOutsideSlice",
    "RowsUnaccounted",
    "SchemaFrozen",
    "ServerLost",
    "SourceChanged",
    "SourceMissing",
    "SourceUnreadable",
    "SparkLost",
    "SparkUnavailable",
    "StateAhead",
    "StateDamaged",
    "StreamChanged",
    "StreamFailed",
    "StreamNotRedone",
    "StreamsNotRemote",
    "TableBusy",
    "TableMissing",
    "TombstonesUnknown",
    "UnknownPipeline",
    "UnknownTarget",
    "UpstreamRecreated",
    "UpstreamRewritten",
    "UpstreamVacuumed",
    "UsageError",
    "VersionGone",
    "WorkFailed",
    "WorkersDiffer",
    "WriteFailed",
    "WrongColumns",
    "WrongHeader",
    "WrongReturnType",
    "WrongTimeType",
]
