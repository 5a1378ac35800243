"""One micro-batch of a declared stream, as an attempt reads it: rows computed once, and every one accounted for."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from oncelake.delta.quarantine import quarantined_places, replace_quarantined
from oncelake.errors import CheckpointBehind, DecodedBefore
from oncelake.model.arrivals import CountedRead
from oncelake.model.contracts import Pins, Reading
from oncelake.model.slices import Slice
from oncelake.model.streams import REASON, MessageSource, StreamPart, StreamSource
from oncelake.model.work import AS_WRITTEN
from oncelake.planning.streams import CHECKPOINT, QUARANTINE
from oncelake.spark.columns import fail_unless
from oncelake.spark.materialize import materialize
from oncelake.streaming.failures import known_failure

BAD_ROW = "a message of the batch cannot be decoded"
NO_PROJECTION = "the function does more than project the rows of the batch"

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class MicroBatch(StreamPart):
    """A stream's source within one batch: its pins are the offsets of the batch, and its rows are the frame of Spark's call."""

    def __init__(
        self, source: StreamSource, frame: DataFrame, pins: Pins, folder: str, decoded: bool, begun: bool
    ) -> None:
        """Nothing is read yet.

        `decoded` says that the query has applied the function to the stream as a whole, `begun` that some target has the
        batch: the others get the same rows, and what was in quarantine then is left out.
        """
        self.source, self.frame, self.pins, self.folder = source, frame, pins, folder
        self.decoded, self.begun = decoded, begun
        # Whether the rows are read by the write itself, see `one_pass`; and whether some could not be decoded.
        self.in_one_pass = False
        self.had_bad_rows = False

    def pin(self, reading: Reading) -> Pins:  # noqa: ARG002  the contract
        """Return the offsets of the batch."""
        return self.pins

    def verify(self, reading: Reading, pins: Pins) -> None:
        """Raise if another target of the batch was written from other offsets."""
        if pins["offsets"]["sources"] != self.pins["offsets"]["sources"]:
            batch, folder = self.pins["batch"], posixpath.join(self.folder, CHECKPOINT)
            facts = {"pipeline": reading.pipeline, "target": "another target", "batch": batch, "begun": batch}
            raise CheckpointBehind(folder=folder, **facts)

    def read(self, session: SparkSession, reading: Reading, pins: Pins) -> MicroBatchRead:  # noqa: ARG002  the contract
        """Return the read of the batch."""
        return MicroBatchRead(self, reading)


class MicroBatchRead(CountedRead):
    """The rows of a micro-batch, computed once, and the account of them: read = given to the function + quarantined."""

    def __init__(self, batch: MicroBatch, reading: Reading) -> None:
        """Nothing is read yet."""
        self.batch, self.reading = batch, reading

    def __call__(self, slice_: Slice) -> DataFrame:  # noqa: ARG002  the contract; a batch is not cut further
        """Return the rows that are passed to the function."""
        if self.batch.in_one_pass:
            from pyspark.sql import functions as F

            decoded = self.batch.source.decode(self.batch.frame)
            return _without_hidden(fail_unless(decoded, F.col(REASON).isNull(), BAD_ROW))
        return self._computed[0]

    def facts(self) -> Mapping[str, Any]:
        """Return the counts of the rows that were read; none for a stream with state whose rows cannot be damaged."""
        if self.batch.in_one_pass:
            return {"rows_read": AS_WRITTEN, "quarantined": 0, "filtered": 0}
        read, quarantined = self._computed[1:]
        return {} if read is None else {"rows_read": read, "quarantined": quarantined, "filtered": 0}

    def read_again(self, error: Exception) -> bool:
        """Return whether a batch that was to be written in one pass cannot be: nothing of it is committed.

        An error of the source is raised again by the count, which says what it means.
        """
        if not self.batch.in_one_pass:
            return False
        causes = _causes(error)
        text = "\n".join(map(str, causes))
        known = any(known_failure(each, self.reading.pipeline, self.reading.where) for each in causes)
        if not known and BAD_ROW not in text and NO_PROJECTION not in text:
            return False
        self.batch.in_one_pass, self.batch.had_bad_rows = False, BAD_ROW in text
        return True

    @cached_property
    def _computed(self) -> tuple[DataFrame, int | None, int]:
        if self.batch.decoded:
            return self._keep_result()
        source = self.batch.source
        decoded = materialize(source.decode(self.batch.frame), eager=False)
        try:
            read, bad = _count(decoded)  # the job that counts them computes them
        except Exception as error:
            known = known_failure(error, self.reading.pipeline, self.reading.where)
            raise (known or error) from error
        if self.batch.begun and isinstance(source, MessageSource):
            return self._repeat(source, decoded, read)
        self._quarantine(decoded, bad)
        self.batch.had_bad_rows = bad > 0
        return good_rows(decoded), read, bad

    def _repeat(self, source: MessageSource, decoded: DataFrame, read: int) -> tuple[DataFrame, int, int]:
        """Return the rows that the other targets have of the batch, also if the declaration was fixed since."""
        places = quarantined_places(self._path, self.batch.pins["batch"])
        left = source.leave_out(decoded, places) if places else decoded
        if count := _count(left)[1]:
            what, facts = str(self.reading.slice), {"pipeline": self.reading.pipeline, "where": self.reading.where}
            raise DecodedBefore(what=what, count=count, **facts)
        return good_rows(left), read, sum(map(len, places.values()))

    def _keep_result(self) -> tuple[DataFrame, int | None, int]:
        """Return the result of a query with state, which is cheap to keep and must not change.

        The query has dropped what it could not decode: the messages of the batch are read once more to account for it.
        """
        source, pins, frame = self.batch.source, self.batch.pins, self.batch.frame
        result = materialize(frame, eager=False)
        if not isinstance(source, MessageSource) or not source.may_fail:
            return result, None, 0
        (end,), (start,) = pins["offsets"]["sources"], pins["from"] or (None,)
        if start == end:  # Spark only advances the watermark
            return result, 0, 0
        decoded = materialize(source.decode(source.read_between(frame.sparkSession, start, end)), eager=False)
        read, bad = _count(decoded)
        self._quarantine(decoded, bad)
        return result, read, bad

    def _quarantine(self, decoded: DataFrame, count: int) -> None:
        """Replace what is in quarantine of the batch by what could not be decoded now."""
        from pyspark.sql import functions as F

        bad = self.batch.source.raw(decoded.where(F.col(REASON).isNotNull()))
        replace_quarantined(bad, self._path, self.batch.pins["batch"], count, self.reading.where)

    @property
    def _path(self) -> str:
        return posixpath.join(self.batch.folder, QUARANTINE)


def good_rows(decoded: DataFrame) -> DataFrame:
    """Return the rows that could be decoded, as the function gets them."""
    return _without_hidden(decoded.where(f"`{REASON}` IS NULL"))


def _count(decoded: DataFrame) -> tuple[int, int]:
    """Return how many rows there are, and how many of them could not be decoded."""
    from pyspark.sql import functions as F

    counts = decoded.agg(F.count("*").alias("read"), F.count(REASON).alias("bad")).collect()[0]
    return counts["read"], counts["bad"]


def _without_hidden(decoded: DataFrame) -> DataFrame:
    return decoded.drop(*(name for name in decoded.columns if name.startswith("__once_")))


def _causes(error: BaseException) -> list[Exception]:
    """Return an error and what caused it; one may be raised from itself."""
    found: list[Exception] = []
    while isinstance(error, Exception) and error not in found:
        found.append(error)
        error = error.__cause__ or error
    return found
