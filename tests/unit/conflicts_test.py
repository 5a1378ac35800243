"""What exceptions of delta-rs and of Connect servers mean, by their classes and texts; no Spark."""

import pytest
from deltalake.exceptions import CommitFailedError

from oncelake.delta.conflicts import ErrorKind, classify, is_lost_server, one_line

CONNECT = "pyspark.errors.exceptions.connect"


def raised(module, text):
    return type("UnknownException", (Exception,), {"__module__": module})(text)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Failed to commit transaction: 0", ErrorKind.CONFLICT),
        ("Tried committing existing table version: 3", ErrorKind.CONFLICT),
        ("Unsupported table features required: [Clustering]", ErrorKind.OTHER),
    ],
)
def test_a_commit_of_delta_rs_whose_version_is_taken_is_a_conflict(text, kind):
    assert classify(CommitFailedError(text)) is kind


@pytest.mark.parametrize(
    "text",
    [
        "(java.lang.IllegalStateException) Cannot call methods on a stopped SparkContext.",
        "(org.apache.spark.SparkException) Job 4 cancelled because SparkContext was shut down",
        "[RETRIES_EXCEEDED] The maximum number of retries has been exceeded.",
    ],
)
def test_a_connect_server_that_stops_is_lost(text):
    error = raised(CONNECT, text)
    assert is_lost_server(error)
    assert classify(error) is ErrorKind.LOST_JVM


def test_a_classic_session_that_was_stopped_is_no_lost_server():
    text = "Cannot call methods on a stopped SparkContext."
    assert not is_lost_server(raised("pyspark.errors.exceptions.captured", text))
    assert not is_lost_server(raised(CONNECT, "[DIVIDE_BY_ZERO] Division by zero"))


def test_one_line_has_what_began_it():
    text = (
        "An error occurred while calling o84.save.\n: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed\n"
        "\tat org.apache.spark.Some.method(Some.scala:1)\nCaused by: java.lang.RuntimeException: wrapped\n\tat a.b(c)\n"
        "Caused by: org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] customer 0 is not allowed\n\t... 1 more"
    )
    said = one_line(Exception(text))
    assert said.startswith("org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed; caused by ")
    assert said.endswith("[USER_RAISED_EXCEPTION] customer 0 is not allowed")
    assert one_line(Exception("nothing but this\n\tat a.b(c)")) == "nothing but this"
