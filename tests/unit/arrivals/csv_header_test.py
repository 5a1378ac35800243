"""The header of a CSV file, found in the bytes at its beginning."""

import pytest

from oncelake.sources.arrivals.parsing.charset import in_encoding
from oncelake.sources.arrivals.parsing.csv_dialect import Dialect
from oncelake.sources.arrivals.parsing.csv_header import find_header


@pytest.mark.parametrize(
    ("content", "dialect", "header"),
    [
        (b"id,v\r\n1,2\r\n", Dialect(), "id,v"),
        (b'\xef\xbb\xbf"a\nb",c\n1,2\n', Dialect(), '"a\nb",c'),
        ("größe,v\n1,2\n".encode("utf-16"), Dialect(), "größe,v"),
        ("größe;v\n1;2\n".encode("latin-1"), Dialect(sep=b";", encoding="latin-1"), "größe;v"),
        (b"# made by x\n\nid,v\n", Dialect(comment=b"#"), "id,v"),
        (b'"never closed\n1,2\n', Dialect(), None),
        (b"", Dialect(), None),
    ],
)
def test_a_header_is_read_by_the_declared_dialect(content, dialect, header):
    assert find_header(content, dialect, whole=True) == header


def test_a_header_that_may_go_on_is_not_known():
    assert find_header(b"id,v", Dialect(), whole=False) is None
    assert find_header("id,ö\n1,ö".encode("utf-16-le")[:-1], Dialect(encoding="utf-16-le"), whole=False) == "id,ö"


def test_lines_are_written_in_the_declared_encoding():
    assert in_encoding([b"a", "ö".encode()], None) == "a\nö\n".encode()
    assert in_encoding(["ö".encode(), b"\xf6"], "latin-1") == b"\xf6\n\xf6\n"
    assert in_encoding(["ö".encode()], "utf-16").decode("utf-16") == "ö\n"
    assert in_encoding([b"\x81"], "cp1252") == b"\x81\n"
    assert in_encoding([b"a"], "no such encoding") == b"a\n"
