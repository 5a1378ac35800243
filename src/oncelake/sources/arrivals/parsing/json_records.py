"""Rows from JSON objects, by Python's parser: slower than Arrow's, and strict in everything that Arrow's lets pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from oncelake.sources.arrivals.parsing.names import FieldNames
from oncelake.sources.arrivals.parsing.rows import Rescued, RowBuilder
from oncelake.sources.arrivals.parsing.values import present_converter


class RecordRows:
    """Adds JSON objects to a builder, each value in the column it belongs to if it fits there."""

    def __init__(self, schema: pa.Schema) -> None:
        self.builder = RowBuilder(schema)
        self._names = FieldNames(schema.names)
        self._converters = {field.name: present_converter(field.type) for field in schema}

    def add(self, file: int, line: int, record: Mapping[str, Any]) -> None:
        """Add one object as a row. What fits no column is rescued."""
        matched, unmatched = self._names.match(record)
        rescued: dict[str, Rescued] = {name: (record[name], reason) for name, reason in unmatched.items()}
        values = {}
        for column, name in matched.items():
            value = record[name]
            if value is not None:
                values[column], reason = self._converters[column](value)
                if reason:
                    rescued[column] = value, reason
        self.builder.add(file, line, values, rescued)
