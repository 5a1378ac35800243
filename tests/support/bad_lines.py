"""Bad and odd files of lines: JSON, CSV and text."""

import codecs
import json
from dataclasses import replace

from support.bad_files import Case, bad_file, compressed_cases

_ROW = {
    "id": 1,
    "amount": 12.34,
    "qty": 5,
    "price": 2.5,
    "name": "Ann",
    "day": "2024-03-15",
    "at": "2024-03-15T10:00:00Z",
}
_ROW |= {"ok": True, "tags": ["a", "b"], "address": {"city": "Köln", "zip": 50667}}
FIRST, LAST = (json.dumps(_ROW | {"id": number}, ensure_ascii=False).encode() for number in (1, 3))
GOOD_JSON = FIRST + b"\n" + LAST + b"\n"


def _between(line: bytes) -> bytes:
    return FIRST + b"\n" + line + b"\n" + LAST + b"\n"


def _bad(name: str, line: bytes, reason: str = "", *find: bytes | str) -> Case:
    return Case(name, "json", "a.json", _between(line), good_rows=2, bad_rows=1, reason=reason, must_find=(line, *find))


def _rescued(name: str, line: str, *find: str, reason: str = "", column: str = "") -> Case:
    content, rescues = _between(line.encode()), (column,) if column else ()
    return Case(
        name, "json", "a.json", content, good_rows=3, bad_rows=0, must_find=find, reason=reason, rescues=rescues
    )


def _whole(name: str, content: bytes, rows: int, bad: int = 0, *find: str | bytes, **options: object) -> Case:
    return Case(name, "json", "a.json", content, good_rows=rows, bad_rows=bad, must_find=find, options=options)


_DEEP = b"[" * 2000 + b"]" * 2000
_JSON_BAD = [
    _bad("not JSON", b"what is this", ""),
    _bad("half a record in the middle", FIRST[:60]),
    _bad("a record and a half in one line", FIRST + FIRST[:30]),
    _bad("two records in one line", FIRST + b" " + LAST),
    _bad("rubbish behind the record", b'{"id": 2} x'),
    _bad("a list", b"[1, 2]"),
    _bad("a number", b"42"),
    _bad("null", b"null"),
    _bad("a text", b'"hello"'),
    _bad("duplicate keys", b'{"id": 2, "name": "first", "name": "second"}', "duplicate"),
    _bad("duplicate keys, nested", b'{"id": 2, "address": {"city": "a", "city": "b"}}', "duplicate"),
    _bad("duplicate keys by an escape", b'{"id": 2, "n": 1, "\\u006e": 2}', "duplicate"),
    _bad("duplicate unknown keys", b'{"id": 2, "new": 1, "new": 2}', "duplicate"),
    _bad("a raw NUL", b'{"id": 2, "name": "a\0b"}'),
    _bad("a NUL between values", b'{"id": 2,\0"name": "ab"}'),
    _bad("a line of NULs", b"\0" * 20),
    _bad("Latin-1", '{"id": 2, "name": "Jürgen"}'.encode("latin-1"), "UTF-8"),
    _bad("overlong UTF-8", b'{"id": 2, "name": "\xc0\xaf"}', "UTF-8"),
    _bad("a surrogate in UTF-8", b'{"id": 2, "name": "\xed\xa0\x80"}', "UTF-8"),
    _bad("half a character", b'{"id": 2, "name": "\xe2\x82"}', "UTF-8"),
    _bad("Latin-1 in a key", '{"id": 2, "größe": 1}'.encode("latin-1"), "UTF-8"),
    _bad("a raw tab in a text", b'{"id": 2, "name": "a\tb"}'),
    _bad("single quotes", b"{'id': 2}"),
    _bad("a comma too many", b'{"id": 2,}'),
    _bad("a comment", b'{"id": 2 /* two */}'),
    _bad("a bare key", b"{id: 2}"),
    _bad("Python's None", b'{"id": None}'),
    _bad("a number with a plus", b'{"id": +2}'),
    _bad("a number with zeros first", b'{"id": 002}'),
    _bad("hexadecimal", b'{"id": 0x10}'),
    _bad("an unknown escape", b'{"id": 2, "name": "\\q"}'),
    _bad("a text that does not end", b'{"id": 2, "name": "open}'),
    _bad("2,000 nested lists", b'{"id": 2, "new": ' + _DEEP + b"}"),
    _bad("100,000 open brackets", b"[" * 100_000),
]
_JSON_RESCUED = [
    _rescued("text in an integer", '{"id": "hello", "name": "n"}', "hello"),
    _rescued("a fraction in an integer", '{"id": 2, "qty": 1.5}', "1.5"),
    _rescued("an integer out of range of int", '{"id": 2, "qty": 99999999999}', "99999999999", reason="range"),
    _rescued("an integer out of range of bigint", '{"id": 9223372036854775808}', "9223372036854775808", reason="range"),
    _rescued("an integer with 5,000 digits", '{"id": ' + "9" * 5000 + "}", "9" * 5000),
    _rescued("too many fractional digits", '{"id": 2, "amount": 1.239}', "1.239", reason="fraction"),
    _rescued("a decimal out of range", '{"id": 2, "amount": 123456789012.5}', "123456789012.5"),
    _rescued("a decimal with a huge exponent", '{"id": 2, "amount": 1e999999999}', "1e999999999"),
    _rescued("1e400", '{"id": 2, "price": 1e400}', "1e400"),
    _rescued("an integer that double cannot hold", '{"id": 2, "price": 9007199254740993}', "9007199254740993"),
    _rescued("NaN", '{"id": 2, "price": NaN}', "NaN"),
    _rescued("Infinity", '{"id": 2, "price": -Infinity}', "-Infinity"),
    _rescued("a text that says NaN", '{"id": 2, "price": "NaN"}', "NaN"),
    _rescued("an impossible date", '{"id": 2, "day": "2024-02-30"}', "2024-02-30"),
    _rescued("a date in another order", '{"id": 2, "day": "15.03.2024"}', "15.03.2024"),
    _rescued("year 99999", '{"id": 2, "at": "99999-01-01T00:00:00Z"}', "99999-01-01T00:00:00Z"),
    _rescued("year 99999 in a date", '{"id": 2, "day": "99999-01-01"}', "99999-01-01"),
    _rescued("an integer as a timestamp", '{"id": 2, "at": 1}', reason="timestamp", column="at"),
    _rescued("nanoseconds", '{"id": 2, "at": "2024-03-15T10:00:00.123456789Z"}', "2024-03-15T10:00:00.123456789Z"),
    _rescued("hour 25", '{"id": 2, "at": "2024-03-15T25:00:00Z"}', "2024-03-15T25:00:00Z"),
    _rescued("a leap second", '{"id": 2, "at": "2016-12-31T23:59:60Z"}', "2016-12-31T23:59:60Z"),
    _rescued("a text for a boolean", '{"id": 2, "ok": "yes"}', "yes"),
    _rescued("a number for a text", '{"id": 2, "name": 12345678}', "12345678"),
    _rescued("an object for a text", '{"id": 2, "name": {"first": "Xaver"}}', "Xaver"),
    _rescued("a text for a list", '{"id": 2, "tags": "not-a-list"}', "not-a-list"),
    _rescued("a list for an object", '{"id": 2, "address": ["not-an-object"]}', "not-an-object"),
    _rescued("one bad item of a list", '{"id": 2, "tags": ["fine", 4711]}', "fine", "4711"),
    _rescued(
        "one bad field of an object", '{"id": 2, "address": {"city": "Bonn", "zip": "D-53111"}}', "Bonn", "D-53111"
    ),
    _rescued("a new field of an object", '{"id": 2, "address": {"city": "Bonn", "street": "Weg 7"}}', "Bonn", "Weg 7"),
    _rescued("a new column", '{"id": 2, "colour": "vermilion"}', "vermilion", reason="no such column"),
    _rescued("a new nested column", '{"id": 2, "more": {"deep": [{"er": "treasure"}]}}', "treasure"),
    _rescued("a new column with a null", '{"id": 2, "nothing": null}'),
    _rescued("another case", '{"ID": 2, "NAME": "Upper"}', "Upper"),
    _rescued(
        "keys that differ by case", '{"id": 2, "name": "low", "NAME": "HIGH", "Name": "Mixed"}', "low", "HIGH", "Mixed"
    ),
    _rescued(
        "a column of ours",
        '{"id": 2, "_rescued": "mine", "_once_line": 77123, "_once_file_index": 88123}',
        "mine",
        "77123",
        "88123",
    ),
    _rescued("an empty key", '{"id": 2, "": "nameless"}', "nameless"),
    _rescued("keys with spaces and signs", '{"id": 2, "a b.c,d:e\\n": "oddly named"}', "oddly named"),
    _rescued("a lone surrogate", '{"id": 2, "name": "x\\ud800y"}', column="name"),
    _rescued("an escaped NUL", '{"id": 2, "name": "a\\u0000b"}', "a\0b"),
    _rescued("an emoji by two escapes", '{"id": 2, "name": "\\ud83d\\ude00"}', "😀"),
    _rescued("a lone surrogate in a new key", '{"id": 2, "k\\udfff": "surrogate key"}', "surrogate key"),
    _rescued("all columns missing", "{}"),
    _rescued("all columns null", json.dumps(dict.fromkeys(_ROW))),
    _rescued("spaces around everything", ' \t{ "id" : 2 , "name" : " padded " } ', " padded "),
    _rescued("minus zero", '{"id": -0, "price": -0.0}'),
    _rescued("an exponent for an integer", '{"id": 2, "qty": 1e2}', column="qty"),
    _rescued("80 nested lists", '{"id": 2, "new": ' + "[" * 80 + '"core"' + "]" * 80 + "}", "core"),
]
_UTF16 = GOOD_JSON.decode()
_JSON_FILES = [
    _whole("empty", b"", 0),
    _whole("one newline", b"\n", 0),
    _whole("blank lines", b"\n \n" + FIRST + b"\n\t\n\r\n" + LAST + b"\n\n", 2),
    _whole("no newline at the end", GOOD_JSON[:-1], 2),
    _whole("Windows line ends", GOOD_JSON.replace(b"\n", b"\r\n"), 2),
    Case(
        "half a record at the end",
        "json",
        "a.json",
        GOOD_JSON + LAST[:40],
        good_rows=2,
        bad_rows=1,
        must_find=(LAST[:40],),
        reason="truncated",
    ),
    Case(
        "cut in a character",
        "json",
        "a.json",
        GOOD_JSON + b'{"name": "\xe2\x82',
        good_rows=2,
        bad_rows=1,
        must_find=(b"\xe2\x82",),
    ),
    _whole("only an open bracket", b"{", 0, 1, b"{"),
    _whole("UTF-8 with a mark", codecs.BOM_UTF8 + GOOD_JSON, 2),
    _whole("only a mark", codecs.BOM_UTF8, 0),
    _whole("UTF-16 with a mark", _UTF16.encode("utf-16"), 2, 0, "Köln"),
    _whole("UTF-16 big endian with a mark", codecs.BOM_UTF16_BE + _UTF16.encode("utf-16-be"), 2, 0, "Köln"),
    _whole("UTF-32 with a mark", _UTF16.encode("utf-32"), 2, 0, "Köln"),
    _whole("UTF-16 by option", _UTF16.encode("utf-16-le"), 2, 0, "Köln", encoding="UTF-16LE"),
    _whole("Latin-1 by option", _UTF16.encode("latin-1"), 2, 0, "Köln", encoding="ISO-8859-1"),
    bad_file("UTF-16 with half a character", "json", "a.json", _UTF16.encode("utf-16") + b"x"),
    Case(
        "a mark in the middle", "json", "a.json", _between(codecs.BOM_UTF8 + FIRST), bad_rows=None, must_find=("Köln",)
    ),
    Case("binary rubbish", "json", "a.json", bytes(range(256)) * 8, good_rows=0, whole=None),
    _whole("a line of 5 MB", _between(json.dumps(_ROW | {"id": 2, "name": "x" * 5_000_000}).encode()), 3),
    _whole("other order of columns", _between(json.dumps(dict(reversed(_ROW.items()))).encode()), 3),
    _whole(
        "line separator of Unicode in a text",
        _between('{"id": 2, "name": "a\u2028b\x85c"}'.encode()),
        3,
        0,
        "a\u2028b\x85c",
    ),
    Case("a file name with odd signs", "json", "späce %41=ü\n.json", GOOD_JSON, good_rows=2, bad_rows=0),
]
_DOCUMENT = b"[\n" + FIRST + b",\n" + LAST + b"\n]"
_AS_DOCUMENT = {"multiLine": "true"}


def _document(
    name: str, content: bytes, rows: int, bad: int | None = 0, *find: str, whole: bool | None = False
) -> Case:
    return Case(
        name, "json", "d.json", content, _AS_DOCUMENT, good_rows=rows, bad_rows=bad, must_find=find, whole=whole
    )


_DOCUMENTS = [
    _document("document: a list", _DOCUMENT, 2, 0, "Köln"),
    _document("document: one object over lines", json.dumps(_ROW, indent=2).encode(), 1, 0, "Ann"),
    _document("document: an empty list", b"[]", 0),
    _document("document: a list with something else in it", b'[{"id": 1}, 42, {"id": 3}]', 2, 1, "42", whole=None),
    _document("document: a list with a rescued value", b'[{"id": 1, "qty": 1.5}]', 1, 0, "1.5"),
    _document("document: cut", _DOCUMENT[:-20], 0, 1, whole=None),
    _document("document: rubbish at the end", _DOCUMENT + b" x", 0, 1, whole=None),
    _document("document: duplicate keys", b'[{"id": 1, "id": 2}]', 0, 1, whole=None),
    _document("document: a number", b"17", 0, 1, whole=None),
    _document("document: empty", b"", 0),
    _document("document: too deep", b"[" * 100_000, 0, 1, whole=None),
    _document("document: Latin-1", '[{"name": "Jürgen"}]'.encode("latin-1"), 0, 1, whole=None),
    _document("document: with a mark", codecs.BOM_UTF8 + _DOCUMENT, 2),
]
JSON = [
    *_JSON_BAD,
    *_JSON_RESCUED,
    *_JSON_FILES,
    *_DOCUMENTS,
    *compressed_cases("json", ".json", GOOD_JSON * 40, 80, ("Köln",)),
]

# CSV.

HEADER = b"id,amount,qty,price,name,day,at,ok,tags,address\n"
_TAGS, _ADDRESS = b'"[""a"",""b""]"', b'"{""city"": ""Bonn"", ""zip"": 53111}"'
FIRST_ROW = b"1,12.34,5,2.5,Ann,2024-03-15,2024-03-15T10:00:00Z,true," + _TAGS + b"," + _ADDRESS + b"\n"
LAST_ROW = FIRST_ROW.replace(b"1,12.34", b"3,12.34")
GOOD_CSV = HEADER + FIRST_ROW + LAST_ROW
_FEW = "id bigint, name string, qty int"


def _csv(
    name: str,
    content: bytes | str,
    rows: int | None,
    bad: int | None = 0,
    *find: str | bytes,
    reason: str = "",
    **options: object,
) -> Case:
    content = content.encode() if isinstance(content, str) else content
    return Case(name, "csv", "a.csv", content, options, _FEW, rows, bad, find, reason=reason)


def _field(name: str, column: str, text: str, reason: str = "") -> Case:
    names = HEADER.decode().strip().split(",")
    row = ",".join(text if each == column else "" for each in names)
    content = GOOD_CSV + row.encode() + b"\n"
    return Case(
        name,
        "csv",
        "a.csv",
        content,
        good_rows=3,
        bad_rows=0,
        must_find=(text.strip('"'),),
        reason=reason,
        rescues=(column,),
    )


def _bad_csv(name: str, content: bytes | str, reason: str = "", **options: object) -> Case:
    content = content.encode() if isinstance(content, str) else content
    return bad_file(name, "csv", "a.csv", content, reason, schema=_FEW, options=options)


def _numbered(letter: str) -> str:
    return ",".join(f"{letter}{number}" for number in range(1000))


_CSV_FIELDS = [
    _field("text in an integer", "id", "hello", "integer"),
    _field("a fraction in an integer", "qty", "1.5"),
    _field("an integer out of range of int", "qty", "99999999999", "range"),
    _field("an integer out of range of bigint", "id", "9223372036854775808", "range"),
    _field("digits of another script", "id", "١٢٣"),
    _field("an integer with underscores", "id", "1_000"),
    _field("hexadecimal", "id", "0x1F"),
    _field("too many fractional digits", "amount", "1.239", "fraction"),
    _field("a decimal out of range", "amount", "123456789012.5"),
    _field("a decimal with a comma", "amount", '"1,23"'),
    _field("1e400", "price", "1e400"),
    _field("NaN", "price", "NaN"),
    _field("Infinity", "price", "-Infinity"),
    _field("an impossible date", "day", "2023-02-29"),
    _field("an American date", "day", "03/15/2024"),
    _field("year 99999", "at", "99999-01-01T00:00:00Z"),
    _field("an integer as a timestamp", "at", "1710496800"),
    _field("nanoseconds", "at", "2024-03-15T10:00:00.123456789Z"),
    _field("yes for a boolean", "ok", "yes"),
    _field("a list that is no JSON", "tags", "a;b"),
    _field("an object that is no JSON", "address", "Bonn"),
]
_CSV_ROWS = [
    _csv("too few fields", "id,name,qty\n1,a,1\n2,short\n3,c,3\n", 2, 1, "2,short", reason="few"),
    _csv("too many fields", "id,name,qty\n1,a,1\n2,b,2,surplus\n3,c,3\n", 2, 1, "surplus", reason="many"),
    _csv("a quote that is not closed", 'id,name,qty\n1,a,1\n2,"open,2\n3,c,3\n', None, None, "open", "3"),
    _csv("text behind a quote", 'id,name,qty\n1,a,1\n2,"b"tail,2\n3,c,3\n', 2, 1, "tail"),
    _csv("a quote inside a field", 'id,name,qty\n1,5" pipe,1\n3,c,3\n', 2, 0, '5" pipe'),
    _csv(
        "invalid UTF-8", "id,name,qty\n1,a,1\n2,Jürgen,2\n3,c,3\n".encode("latin-1"), 2, 1, b"J\xfcrgen", reason="UTF-8"
    ),
    _csv("a raw NUL", b"id,name,qty\n1,a,1\n2,a\0b,2\n3,c,3\n", None, None, b"a\0b"),
    _csv("a row cut at the end", "id,name,qty\n1,a,1\n3,c", 1, 1, "3,c"),
    _csv("a row cut in a quote", 'id,name,qty\n1,a,1\n3,"unfin', 1, 1, "unfin"),
    _csv("a cut in a quote with lines behind", 'id,name,qty\n1,"unfin\n2,b,2\n3,c,3\n', None, None, "unfin", "b", "c"),
    _csv("a row of commas", "id,name,qty\n,,\n3,c,3\n", 2),
    _csv("a row of spaces", "id,name,qty\n   \n3,c,3\n", None, None, "c"),
]
_CSV_FILES = [
    _csv("empty", "", 0),
    _csv("only a header", "id,name,qty\n", 0),
    _csv("a header without a newline", "id,name,qty", 0),
    _csv("Windows line ends", "id,name,qty\r\n1,a,1\r\n3,c,3\r\n", 2),
    _csv("old Mac line ends", "id,name,qty\r1,a,1\r3,c,3\r", None, None, "a", "c"),
    _csv("no newline at the end", "id,name,qty\n1,a,1\n3,c,3", 2),
    _csv("blank lines", "\n\nid,name,qty\n\n1,a,1\n\n3,c,3\n\n", 2),
    _csv("a newline in quotes", 'id,name,qty\n1,"two\nlines",1\n3,c,3\n', 2, 0, "two\nlines"),
    _csv("doubled quotes", 'id,name,qty\n1,"say ""hi""",1\n3,c,3\n', 2, 0, 'say "hi"'),
    _csv("an empty text in quotes", 'id,name,qty\n1,"",1\n3,c,3\n', 2),
    _csv("other order of columns", "qty,id,name\n7,1,a\n8,3,swapped\n", 2, 0, "swapped"),
    _csv("another case of the header", "ID,Name,QTY\n1,a,1\n3,cased,3\n", 2, 0, "cased"),
    _csv("an unknown column", "id,name,colour,qty\n1,a,vermilion,1\n", 1, 0, "vermilion", reason="no such column"),
    _csv("a missing column", "id,name\n1,a\n3,c\n", 2, 0, "c"),
    _csv("names that differ by case", "id,name,NAME,qty\n1,low,HIGH,1\n", None, None, "low", "HIGH"),
    _csv("a column of ours", "id,name,qty,_rescued\n1,a,1,mine\n", 1, 0, "mine"),
    _csv("quoted header", '"id","name","qty"\n1,a,1\n', 1, 0, "a"),
    _csv("spaces around header names", "id, name ,qty\n1,spaced,1\n", 1, 0, "spaced"),
    _csv("a nameless column", "id,name,,qty\n1,a,nameless,1\n", None, None, "nameless"),
    _csv("UTF-8 with a mark", codecs.BOM_UTF8 + "id,name,qty\n1,Köln,1\n".encode(), 1, 0, "Köln"),
    _csv("UTF-8 with a mark and quotes", codecs.BOM_UTF8 + '"id",name,qty\n1,Köln,1\n'.encode(), 1, 0, "Köln"),
    _csv("UTF-16 with a mark", "id,name,qty\n1,Köln,1\n".encode("utf-16"), 1, 0, "Köln"),
    _csv("Latin-1 by option", "id,name,qty\n1,Köln,1\n".encode("latin-1"), 1, 0, "Köln", encoding="latin1"),
    _csv("semicolons by option", "id;name;qty\n1;a,b;1\n", 1, 0, "a,b", sep=";"),
    _csv("tabs by option", "id\tname\tqty\n1\ta b\t1\n", 1, 0, "a b", sep="\\t"),
    _csv("another quote by option", "id,name,qty\n1,'a,b',1\n", 1, 0, "a,b", quote="'"),
    _csv("an escape by option", 'id,name,qty\n1,"a\\"b",1\n', 1, 0, 'a"b', escape="\\"),
    _csv("comments by option", "# made by hand\nid,name,qty\n1,a,1\n# end\n", 1, 0, "a", comment="#"),
    _csv("a null by option", "id,name,qty\n1,NULL,1\n", 1, nullValue="NULL"),
    _csv("without a header by option", "1,a,1\n3,c,3\n", 2, 0, "c", header="false"),
    _csv("a field of 3 MB", "id,name,qty\n1," + "x" * 3_000_000 + ",1\n", 1),
    _csv("1,000 columns", f"id,{_numbered('c')}\n1,{_numbered('v')}\n", 1, 0, "v0", "v999"),
    _bad_csv("no known column", "x,y\nsome,thing\n", "no header"),
    _bad_csv("semicolons without the option", "id;name;qty\n1;a;1\n", "no header"),
    _bad_csv("binary rubbish", bytes(range(1, 256)) * 8),
    _bad_csv("duplicate header names", "id,name,name\n1,a,b\n", "more than once"),
    _bad_csv("a header that is not UTF-8", "id,größe\n1,2\n".encode("latin-1")),
    _bad_csv("a header with a quote that is not closed", '"id,name\n1,a\n'),
]
CSV = [
    *_CSV_FIELDS,
    *_CSV_ROWS,
    *_CSV_FILES,
    *compressed_cases("csv", ".csv", HEADER + FIRST_ROW * 80, 80, ("Ann", "Bonn")),
]

# Text: every line is a row.


def _text(
    name: str, content: bytes, rows: int | None, bad: int | None = 0, *find: str | bytes, **options: object
) -> Case:
    return Case(name, "text", "a.txt", content, options, "value string", rows, bad, find)


TEXT = [
    _text("empty", b"", 0),
    _text("lines", b"one\ntwo\n", 2, 0, "one", "two"),
    _text("no newline at the end", b"one\ntwo", 2, 0, "two"),
    _text("Windows line ends", b"one\r\ntwo\r\n", 2, 0, "one"),
    _text("invalid UTF-8", b"one\nJ\xfcrgen\nthree\n", 2, 1, b"J\xfcrgen"),
    _text("a NUL", b"one\na\0b\n", None, None, b"a\0b"),
    _text("UTF-8 with a mark", codecs.BOM_UTF8 + "Köln\n".encode(), 1, 0, "Köln"),
    _text("UTF-16 with a mark", "Köln\nBonn\n".encode("utf-16"), 2, 0, "Köln"),
    _text("Latin-1 by option", "Köln\n".encode("latin-1"), 1, 0, "Köln", encoding="latin1"),
    _text("a line of 5 MB", b"x" * 5_000_000, 1),
    *[
        replace(each, schema="value string")
        for each in compressed_cases("text", ".txt", b"one line\n" * 80, 80, ("one line",))
    ],
]
