"""Parse a pack of files of any format. Whatever is in a file, the others are parsed, and nothing is raised."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from oncelake.sources.arrivals.parsing.decompress import BadFile, expand
from oncelake.sources.arrivals.parsing.long_records import MAX_RECORD_BYTES, MAX_ROW_BYTES, without_long_rows
from oncelake.sources.arrivals.parsing.options import flag
from oncelake.sources.arrivals.parsing.records import FileFormat, PackedFile, Parsed
from oncelake.sources.arrivals.parsing.rows import RowBuilder, bad_file, concat

Parser = Callable[[Sequence[PackedFile], FileFormat, pa.Schema], Parsed]

KINDS = ("json", "csv", "text", "binary", "parquet", "orc", "avro")
# The others have a compression of their own, or are kept as they are.
_COMPRESSED = ("json", "csv", "text")
# Small files may expand to large ones: so many bytes of them are held at a time.
_GROUP = 1 << 26


def parse(files: Sequence[PackedFile], fmt: FileFormat, schema: pa.Schema) -> Parsed:
    """Return the rows of files in the columns of a schema, and everything else in them with the reason."""
    parser = _parser(fmt)
    if fmt.kind not in _COMPRESSED:
        return concat(list(_parse(files, fmt, schema, parser)))
    refused = RowBuilder(schema)
    parts = [part for group in _expand(files, fmt, refused) for part in _parse(group, fmt, schema, parser)]
    return concat([*parts, refused.build()])


def _parser(fmt: FileFormat) -> Parser:
    # Each format is imported where it is used: an executor that reads JSON needs no library of Avro.
    if fmt.kind == "json":
        return _json_parser(fmt)
    if fmt.kind == "csv":
        from oncelake.sources.arrivals.parsing.csv_rows import parse_csv

        return parse_csv
    if fmt.kind in ("text", "binary"):
        from oncelake.sources.arrivals.parsing.text import parse_binary, parse_text

        return parse_text if fmt.kind == "text" else parse_binary
    if fmt.kind not in KINDS:
        raise ValueError(f"format {fmt.kind!r} is none of {', '.join(KINDS)}")
    from oncelake.sources.arrivals.parsing.columnar import parse_columnar

    return parse_columnar


def _json_parser(fmt: FileFormat) -> Parser:
    from oncelake.sources.arrivals.parsing.json_documents import parse_json_documents
    from oncelake.sources.arrivals.parsing.json_lines import parse_json_lines

    return parse_json_documents if flag(fmt, "multiline") else parse_json_lines


def _parse(files: Sequence[PackedFile], fmt: FileFormat, schema: pa.Schema, parser: Parser) -> Iterator[Parsed]:
    """Parse files together. If that fails, find the file that makes it fail, by halves: that one is bad."""
    try:
        yield without_long_rows(parser(files, fmt, schema), _row_limit(fmt))
    except Exception as error:  # noqa: BLE001  a file that no one has thought of must not stop the others
        if len(files) == 1:
            reason = f"cannot be parsed: {type(error).__name__}: {error}"
            yield bad_file(schema, files[0].index, reason, files[0].content)
            return
        middle = len(files) // 2
        yield from _parse(files[:middle], fmt, schema, parser)
        yield from _parse(files[middle:], fmt, schema, parser)


def _row_limit(fmt: FileFormat) -> int:
    # The records of text formats are measured before they are parsed.
    return MAX_ROW_BYTES if fmt.kind in _COMPRESSED else MAX_RECORD_BYTES


def _expand(files: Sequence[PackedFile], fmt: FileFormat, refused: RowBuilder) -> Iterator[list[PackedFile]]:
    """Yield the files expanded, in groups of a bounded size. Those that cannot be expanded are added to `refused`."""
    group: list[PackedFile] = []
    size = 0
    for file in files:
        try:
            name, content = expand(file.name, file.content, fmt.max_expanded_bytes)
        except BadFile as error:
            refused.add_bad_file(file.index, str(error), file.content)
            continue
        group.append(file if content is file.content else PackedFile(file.index, name, content))
        size += len(content)
        if size > _GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group
