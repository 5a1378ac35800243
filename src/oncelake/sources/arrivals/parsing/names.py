"""Which field of a record belongs to which column: by its exact name, or by the only one that differs in case alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from oncelake.model.names import is_refused_by_delta

NO_SUCH_COLUMN = "no such column"
REFUSED_NAME = f"{NO_SUCH_COLUMN}, and Delta refuses its name"


class FieldNames:
    """The names of the columns of a table, or of the fields of a struct."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(names)
        self._exact = frozenset(self.names)
        lower = Counter(name.lower() for name in self.names)
        self._any_case = {name.lower(): name for name in self.names if lower[name.lower()] == 1}

    def match(self, given: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
        """Return the field for each column that has one, and the reason for each field that has no column."""
        given = list(given)
        matched = {name: name for name in given if name in self._exact}
        if len(matched) == len(given):
            return matched, {}
        columns = {name: self._any_case.get(name.lower()) for name in given if name not in self._exact}
        rivals = Counter(columns.values())
        unmatched = {}
        for name, column in columns.items():
            if column is None:
                unmatched[name] = REFUSED_NAME if is_refused_by_delta(name) else NO_SUCH_COLUMN
            elif column in self._exact.intersection(given) or rivals[column] > 1:
                unmatched[name] = f"another field matches column {column}"
            else:
                matched[column] = name
        return matched, unmatched
