"""Dates in paths."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from oncelake.sources.arrivals.path_dates import path_times


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("in/2024/03/15/a.json", "%Y/%m/%d", datetime(2024, 3, 15, tzinfo=UTC)),
        ("in/dt=2024-03-15/a.json", "dt=%Y-%m-%d", datetime(2024, 3, 15, tzinfo=UTC)),
        ("in/x-20240315T07.json", "%Y%m%dT%H", datetime(2024, 3, 15, 7, tzinfo=UTC)),
        ("in/1234567890/20240315.json", "%Y%m%d", datetime(2024, 3, 15, tzinfo=UTC)),
        ("in/03-15-2024.csv", "%m-%d-%Y", datetime(2024, 3, 15, tzinfo=UTC)),
        ("in/2024-03/a.json", "%Y-%m", datetime(2024, 3, 1, tzinfo=UTC)),
        ("in/2023-02-29/a.json", "%Y-%m-%d", None),
        ("in/2024-13-01/a.json", "%Y-%m-%d", None),
        ("in/a.json", "%Y-%m-%d", None),
    ],
)
def test_the_date_in_a_path(path, pattern, expected):
    (found,) = path_times(pa.chunked_array([[path]]), pattern).to_pylist()
    assert (found and datetime.fromtimestamp(found / 1e9, UTC)) == expected
