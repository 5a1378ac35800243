"""Every error oncelake raises, in one place.

    OncelakeError
    ├── UsageError                  exit 2: found before anything is read or written
    │   ├── BadSettings             oncelake.yaml cannot be used
    │   ├── BadDeclaration          a pipeline, source or pattern is declared wrongly
    │   ├── LoadFailed              a project file raised while it was loaded
    │   ├── DuplicatePipeline       two pipelines share a name
    │   ├── CyclicPipelines         pipelines read each other's tables in a circle
    │   ├── OverlappingWriters      two pipelines would replace each other's rows
    │   ├── UnknownPipeline         no pipeline of that name
    │   ├── UnknownTarget           no pipeline writes that table
    │   ├── BadRange                a date or range that cannot be meant
    │   ├── BadVersion              a version that a table has not got
    │   ├── NothingToRestate        a restatement of what was never done
    │   └── NotEmpty                init would write over something
    ├── WorkFailed                  exit 1: this work was not written
    │   ├── SourceMissing           the files of an interval are not there
    │   ├── SourceChanged           files changed while they were read
    │   ├── TableMissing            a table to read does not exist
    │   ├── NotDelta                the folder holds something else
    │   ├── CorruptLog              a Delta log that cannot be read
    │   ├── ColumnMissing           a declared column is not in the frame
    │   ├── WrongTimeType           a time column that is not a time
    │   ├── WrongReturnType         the function returned no frame for a target
    │   ├── WrongColumns            the frame does not fit the target
    │   ├── RowsOutsideSlice        rows outside the slice
    │   ├── NullKeys                rows without a key
    │   ├── RepeatedKeys            a key more than once where it may be there once
    │   ├── CannotRestate           a work that cannot be restated
    │   ├── EmptyOverwrite          a reload would replace rows by none
    │   ├── NotPartitioned          replace_partitions on a table partitioned otherwise
    │   ├── FunctionFailed          the user's function raised
    │   └── WriteFailed             Spark or Delta refused the write
    ├── Blocked                     exit 1: something it reads is not done
    ├── TableBusy                   exit 4: another runner has it, safe to retry
    ├── OutcomeUnknown              exit 1: the log could not be asked after an error
    ├── LockUnavailable             exit 1: the folder of locks cannot be used
    ├── SparkUnavailable            exit 1: no Java, or Delta's jars cannot be had
    ├── ProverUnavailable           exit 1: a level of proof needs what this machine has not
    └── NothingToProve              exit 1: the clean run, which every other is compared with, did not end well

Each takes facts and writes its own message from them; tests look at `code` and `facts`, never at prose.
"""

from oncelake.errors.base import OncelakeError, Retry
from oncelake.errors.environment import LockUnavailable, NothingToProve, ProverUnavailable, SparkUnavailable
from oncelake.errors.usage import (
    BadDeclaration,
    BadRange,
    BadSettings,
    BadVersion,
    CyclicPipelines,
    DuplicatePipeline,
    LoadFailed,
    NotEmpty,
    NothingToRestate,
    OverlappingWriters,
    UnknownPipeline,
    UnknownTarget,
    UsageError,
)
from oncelake.errors.work import (
    Blocked,
    CannotRestate,
    ColumnMissing,
    CorruptLog,
    EmptyOverwrite,
    FunctionFailed,
    NotDelta,
    NotPartitioned,
    NullKeys,
    OutcomeUnknown,
    RepeatedKeys,
    RowsOutsideSlice,
    SourceChanged,
    SourceMissing,
    TableBusy,
    TableMissing,
    WorkFailed,
    WriteFailed,
    WrongColumns,
    WrongReturnType,
    WrongTimeType,
)

__all__ = [
    "BadDeclaration",
    "BadRange",
    "BadSettings",
    "BadVersion",
    "Blocked",
    "CannotRestate",
    "ColumnMissing",
    "CorruptLog",
    "CyclicPipelines",
    "DuplicatePipeline",
    "EmptyOverwrite",
    "FunctionFailed",
    "LoadFailed",
    "LockUnavailable",
    "NotDelta",
    "NotEmpty",
    "NotPartitioned",
    "NothingToProve",
    "NothingToRestate",
    "NullKeys",
    "OncelakeError",
    "OutcomeUnknown",
    "OverlappingWriters",
    "ProverUnavailable",
    "RepeatedKeys",
    "Retry",
    "RowsOutsideSlice",
    "SourceChanged",
    "SourceMissing",
    "SparkUnavailable",
    "TableBusy",
    "TableMissing",
    "UnknownPipeline",
    "UnknownTarget",
    "UsageError",
    "WorkFailed",
    "WriteFailed",
    "WrongColumns",
    "WrongReturnType",
    "WrongTimeType",
]
