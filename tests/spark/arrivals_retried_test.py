"""Rows of CSV files that are retried: their columns are those of the content that they came from."""

from oncelake.testing.recording_listener import RecordingListener
from support.arrivals import events, table

SCHEMA = "first string, last string"
COLUMNS = ("first", "last")


def csv(encoding=None, header="true", **options):
    given = {"header": header} | ({"encoding": encoding} if encoding else {})
    return events(kind="csv", schema=SCHEMA, options=given, **options)


def write(path, text, encoding="latin-1"):
    path.write_bytes(text.encode(encoding))


def retry(project):
    listener = RecordingListener()
    project.retry_quarantine("events", listener=listener)
    return [event.text for event in listener.events if type(event).__name__ == "Warned"]


def entries(project, state="quarantined"):
    return [(row.file, row.line) for row in project.arrivals("events").quarantine(state)]


def test_a_row_of_a_file_that_changed_since_stays_in_quarantine(arriving, landing):
    p = arriving(csv())
    write(landing / "a.csv", "first,last\nBob,Ray\nAnn,Löwe\n")
    write(landing / "b.csv", 'last,"first"\nLöwe,Eva\n')
    p.run()
    write(landing / "a.csv", "last,first\nMiller,Zoe\n")
    p = arriving(csv("latin-1"))
    (note, *_) = retry(p)
    assert "1 entries stay in quarantine, because their files are not as they were read" in note
    assert "landing/a.csv" in note
    assert table(p, "bronze", *COLUMNS) == [("Bob", "Ray"), ("Eva", "Löwe")]
    assert entries(p) == [("landing/a.csv", 3)]


def test_a_row_that_was_retried_before_keeps_its_header(arriving, landing):
    p = arriving(csv(changed="append"))
    write(landing / "a.csv", "first,last\nAnn,Löwe\n")
    p.run()
    write(landing / "a.csv", "last,first\nLöwe,Eva\n")
    p.run()
    (note,) = retry(p)
    assert note.endswith("the header of these rows is not known any more: landing/a.csv")
    assert entries(p) == [("landing/a.csv", 2)] * 2
    (landing / "a.csv").unlink()
    p = arriving(csv("latin-1", changed="append"))
    assert len(retry(p)) == 1
    assert table(p, "bronze", *COLUMNS) == [("Eva", "Löwe")]


def test_rows_without_a_header_are_retried_alone(arriving, landing):
    p = arriving(csv(header="false"))
    path = landing / "a.csv"
    write(path, "Bob,Ray\nAnn,Löwe\n")
    p.run()
    path.unlink()
    p = arriving(csv("latin-1", header="false"))
    assert retry(p) == []
    assert table(p, "bronze", *COLUMNS) == [("Ann", "Löwe"), ("Bob", "Ray")]


def test_rows_are_retried_in_the_encoding_of_their_file(arriving, landing):
    p = arriving(csv("utf-16"))
    write(landing / "a.csv", 'first,last\nBob,Ray\nAnn,"Löwe" x\n', "utf-16")
    p.run()
    assert entries(p) == [("landing/a.csv", 3)]
    p = arriving(events(kind="csv", schema=SCHEMA, options={"encoding": "utf-16", "quote": ""}))
    assert retry(p) == []
    assert table(p, "bronze", *COLUMNS) == [("Ann", '"Löwe" x'), ("Bob", "Ray")]
