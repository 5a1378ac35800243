"""What parsing takes and gives: the files of a pack and how to read them; their rows, and what could not be read, as Arrow tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

# Beside the columns of the schema a row has the file it came from, its line (or row number) in it, from 1, and what was rescued.
FILE, LINE, RESCUED = "_once_file_index", "_once_line", "_rescued"
# What could not be read: a whole file (then there is no line), or a row.
BAD = pa.schema({FILE: pa.int64(), LINE: pa.int64(), "offset": pa.int64(), "raw": pa.binary(), "reason": pa.string()})
# How many rows each file had.
COUNTS = pa.schema({FILE: pa.int64(), "read": pa.int64()})
# Values that do not fit the schema: a column that it does not have, or another type, which would hold the value.
DRIFT = pa.schema({"column": pa.string(), "type": pa.string(), "rows": pa.int64()})

# The largest file that one task reads as a whole, and what a small compressed one may expand to: its rows need several times that.
MAX_READ_BYTES, MAX_EXPANDED_BYTES = 1 << 30, 256 << 20


@dataclass(frozen=True)
class PackedFile:
    """One file of a pack: its index in the manifest, its name (which tells the compression), and its bytes."""

    index: int
    name: str
    content: bytes


@dataclass(frozen=True)
class FileFormat:
    """How files are read: the format, the options of the user, and the limits beyond which a file is refused."""

    kind: str
    options: Mapping[str, Any] = field(default_factory=dict)
    max_expanded_bytes: int = MAX_READ_BYTES


@dataclass(frozen=True)
class Parsed:
    """What a pack of files came to. For each file: rows read = rows + bad rows; a file that is bad counts as one row."""

    rows: pa.Table
    bad: pa.Table
    counts: pa.Table
    drift: pa.Table
