"""Build the column of rescued values for many rows at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from oncelake.sources.arrivals.parsing.json_text import quote

_NO_TEXT = pa.scalar(None, pa.string())
_SEPARATOR = ", "


def rescue_entries(column: str, values: pa.Array, reasons: pa.Array | str) -> pa.Array:
    """Return for each row the entry of a column in `_rescued`, from values as JSON. There is none where value or reason is null."""
    reason = quote(reasons) if isinstance(reasons, str) else json_strings(reasons)
    head, between, tail = f'{_SEPARATOR}{quote(column)}: {{"value": ', ', "reason": ', "}"
    return pc.binary_join_element_wise(head, values, between, reason, tail, "", null_handling="emit_null")


def join_entries(entries: Sequence[pa.Array], rows: int) -> pa.Array:
    """Return the `_rescued` column of some rows: null for a row without any entry."""
    if not entries:
        return pa.nulls(rows, pa.string())
    # Not null_handling="skip": Arrow leaves out rows in which all are null.
    joined = pc.binary_join_element_wise(*entries, "", null_handling="replace", null_replacement="")
    rescued = pc.binary_join_element_wise("{", pc.utf8_slice_codeunits(joined, len(_SEPARATOR)), "}", "")
    return pc.if_else(pc.equal(joined, ""), _NO_TEXT, rescued)


def json_strings(texts: pa.Array) -> pa.Array:
    """Return texts as JSON strings. A null stays null."""
    if not _needs_escape(texts):
        return pc.binary_join_element_wise('"', texts, '"', "")
    encoded = texts.dictionary_encode()
    quoted = pa.array([quote(text) for text in encoded.dictionary.to_pylist()], pa.string())
    return quoted.take(encoded.indices)


def _needs_escape(texts: pa.Array) -> bool:
    """Say whether there may be a character that a JSON string cannot contain as it is."""
    data = texts.buffers()[2]
    if data is None or not data.size:
        return False
    content = np.frombuffer(data, np.uint8)
    return bool(content.min() < 0x20 or (content == 0x22).any() or (content == 0x5C).any())
