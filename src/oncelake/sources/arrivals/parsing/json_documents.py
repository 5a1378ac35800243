"""JSON documents: a whole file is one object, or one array of objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from oncelake.sources.arrivals.parsing.charset import to_utf8
from oncelake.sources.arrivals.parsing.decompress import BadFile
from oncelake.sources.arrivals.parsing.json_records import RecordRows
from oncelake.sources.arrivals.parsing.json_text import BadJson, dump, load
from oncelake.sources.arrivals.parsing.long_records import KEPT_BYTES, MAX_RECORD_BYTES, why_too_long
from oncelake.sources.arrivals.parsing.options import option
from oncelake.sources.arrivals.parsing.records import FileFormat, PackedFile, Parsed

# A document is parsed in memory as a whole, where it has many times its size.
MAX_DOCUMENT_BYTES = 128 << 20


def parse_json_documents(files: Sequence[PackedFile], fmt: FileFormat, schema: pa.Schema) -> Parsed:
    """Return the objects of files that are one JSON document each. Their number in the file stands for the line."""
    rows = RecordRows(schema)
    for file in files:
        rows.builder.count(file.index)
        try:
            records = _records(file, option(fmt, "encoding"))
        except (BadFile, BadJson) as error:
            rows.builder.add_bad_file(file.index, str(error), file.content)
            continue
        for number, record in enumerate(records, 1):
            if isinstance(record, dict):
                rows.add(file.index, number, record)
            else:
                rows.builder.add_bad(file.index, number, None, dump(record).encode(), "not a JSON object")
    return rows.builder.build()


def _records(file: PackedFile, encoding: str | None) -> list[Any]:
    content, _ = to_utf8(file.content, encoding)
    _check_length(content)
    try:
        text = content.decode().strip(" \t\r\n")
    except UnicodeDecodeError as error:
        raise BadFile(f"not valid UTF-8 at byte {error.start + 1}: {error.reason}") from None
    if not text:
        return []
    try:
        document = load(text)
    except BadJson as error:
        raise BadJson(f"{error}; {'looks truncated' if _is_cut(text) else 'the whole file is one document'}") from None
    if not isinstance(document, (dict, list)):
        raise BadJson("neither a JSON object nor an array of objects")
    return document if isinstance(document, list) else [document]


def _check_length(content: bytes) -> None:
    """Refuse a document that is too long: an object is one row, and an array is parsed in memory."""
    is_object = content[:KEPT_BYTES].lstrip(b" \t\r\n").startswith(b"{")
    if is_object and len(content) > MAX_RECORD_BYTES:
        raise BadFile(why_too_long(len(content)))
    if len(content) > MAX_DOCUMENT_BYTES:
        raise BadFile(f"a document of {len(content):,} bytes, and the limit is {MAX_DOCUMENT_BYTES:,}: use JSON lines")


def _is_cut(text: str) -> bool:
    return not text.endswith({"{": "}", "[": "]"}.get(text[0], ""))
