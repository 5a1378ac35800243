"""What a pipeline can read, one file each, all of the same shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Unpack

from oncelake.errors import BadDeclaration
from oncelake.model.contracts import Source
from oncelake.model.names import refuse_credentials
from oncelake.model.source_location import declared_at
from oncelake.sources.arrivals.arriving import ArrivingFiles
from oncelake.sources.arrivals.declaration import ArrivalOptions, format_of, parse_arrivals
from oncelake.sources.changes import changes
from oncelake.sources.files import FORMATS, FilesSource, parse_files
from oncelake.sources.kafka import kafka
from oncelake.sources.tables import table


@dataclass(frozen=True)
class DeclaredFiles:
    """Files whose path names no interval: they drive a pipeline by their arrival, or are read as a whole."""

    arriving: ArrivingFiles
    whole: FilesSource | None
    arrives: bool | None

    def resolve(self, driven: bool) -> Source:
        """Return the source for a pipeline that can be driven by arrivals, or cannot."""
        if self.arrives or (self.arrives is None and driven):
            return self.arriving
        if self.whole is None:
            raise ValueError(
                f"files at {self.arriving.path!r}: format={self.arriving.format!r} is none of {', '.join(FORMATS)}; others are "
                "read only as they arrive, in a pipeline without every= that appends or merges"
            )
        return self.whole


def files(
    path: str,
    format: str | None = None,  # noqa: A002  Spark's own name for it
    schema: str | None = None,
    missing: str = "error",
    options: Mapping[str, Any] | None = None,
    **arrivals: Unpack[ArrivalOptions],
) -> FilesSource | DeclaredFiles:
    """Read files by a path like `landing/orders/{start:%Y-%m-%d}/*.json`, or as they arrive in a folder like `landing/orders`.

    With a placeholder the path names the files of an interval. `format` is parquet, json or csv, by default the suffix of
    the path. A folder that is absent or empty is an error, because the files may not have arrived yet; with
    `missing="empty"` it means no rows. `options` are passed to Spark's reader. The columns of CSV files are matched by the
    names in the header, in any order.

    Without a placeholder the files drive a pipeline without `every` that appends or merges: each file is ingested once, in
    numbered batches. `format` may also be orc, text, binary or avro. For the options of arrivals, see `ArrivalOptions`.
    """
    try:
        refuse_credentials(str(path))
        kind = format or format_of(path)
        whole = parse_files(path, kind, schema, missing, options)
        if whole.by_interval:
            if arrivals:
                raise ValueError(f"{', '.join(arrivals)} is for files that arrive; the path {path!r} names an interval")
            whole.require_format()
            return whole
        arriving = parse_arrivals(path, kind, schema, options, arrivals)
    except (ValueError, TypeError) as error:
        raise BadDeclaration(where=declared_at(), problem=str(error)) from error
    return DeclaredFiles(arriving, whole if kind in FORMATS else None, arrivals.get("arrives"))


SOURCES: dict[str, Callable[..., Any]] = {"table": table, "files": files, "kafka": kafka, "changes": changes}

__all__ = ["SOURCES", "changes", "files", "kafka", "table"]
