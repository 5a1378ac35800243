"""Dates in the paths of files, by which a range of them is chosen."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

_DIRECTIVE = re.compile("%(.)")
_DIGITS = {"Y": 4, "m": 2, "d": 2, "H": 2, "M": 2, "S": 2}
# What stands for a part that the path does not have.
_FIRST = {"Y": "", "m": "01", "d": "01", "H": "00", "M": "00", "S": "00"}
_LAYOUT = "%Y-%m-%d %H:%M:%S"


def check_path_date(pattern: str) -> None:
    """Raise ValueError if a pattern like "%Y/%m/%d" does not say which day a path belongs to."""
    found = _DIRECTIVE.findall(pattern)
    if unknown := [each for each in found if each not in _DIGITS]:
        raise ValueError(
            f"path_date={pattern!r} has %{unknown[0]}; there are {', '.join(f'%{name}' for name in _DIGITS)}"
        )
    if len(set(found)) < len(found) or set(found) != set("YmdHMS"[: len(found)]) or not found:
        raise ValueError(f'path_date={pattern!r} is not a date like "%Y/%m/%d" or "dt=%Y-%m-%d"')


def path_times(paths: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    """Return the time that each path names, in nanoseconds since 1970 and UTC; null for a path without one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.extract_regex(paths, _regex(pattern))
    given = set(_DIRECTIVE.findall(pattern))
    parts = {name: pc.struct_field(found, name) if name in given else _FIRST[name] for name in _DIGITS}
    day = pc.binary_join_element_wise(parts["Y"], parts["m"], parts["d"], "-")
    texts = pc.binary_join_element_wise(day, pc.binary_join_element_wise(parts["H"], parts["M"], parts["S"], ":"), " ")
    times = pc.strptime(texts, format=_LAYOUT, unit="s", error_is_null=True)
    # The thirtieth of February is none.
    same = pc.equal(pc.strftime(times, format=_LAYOUT), texts)
    return pc.if_else(same, pc.multiply(times.cast(pa.int64()), 1_000_000_000), pa.scalar(None, pa.int64()))


def _regex(pattern: str) -> str:
    """Return a pattern as RE2 has it. Digits beside those of the date make it no date."""
    parts = _DIRECTIVE.split(pattern)
    text = "".join(
        f"(?P<{part}>[0-9]{{{_DIGITS[part]}}})" if at % 2 else re.escape(part) for at, part in enumerate(parts)
    )
    before = "" if parts[0] else "(?:^|[^0-9])"
    after = "" if parts[-1] else "(?:[^0-9]|$)"
    return f"{before}{text}{after}"
