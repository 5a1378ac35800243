"""The guard around a `foreachBatch` function: a batch that Spark replays is written once, to every target."""

import os
import shutil

import pytest

import oncelake as once


class Stream:
    """A stream over files, run until nothing is left; its checkpoint can be set back as if Spark had been killed."""

    def __init__(self, root, spark, function, checkpoint="checkpoint", **options):
        self.root, self.spark, self.checkpoint = root, spark, root / checkpoint
        self.guarded = once.each_batch(function, name="payments", lake=str(root / "lake"), **options)

    def land(self, name, *ids):
        (self.root / "landing").mkdir(exist_ok=True)
        (self.root / "landing" / name).write_text("".join(f'{{"id": {each}}}\n' for each in ids))

    def run(self):
        rows = self.spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(self.root / "landing"))
        writer = rows.writeStream.foreachBatch(self.guarded).option("checkpointLocation", str(self.checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    def forget_the_last_commit(self):
        """Leave the checkpoint as a kill between the function and Spark's own commit leaves it."""
        last = max((self.checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        (last.parent / f".{last.name}.crc").unlink(missing_ok=True)

    def ids(self, target):
        rows = self.spark.read.format("delta").load(str(self.root / "lake" / target)).collect()
        return sorted(row["id"] for row in rows)


def test_a_replayed_batch_is_written_once(tmp_path, spark):
    stream = Stream(tmp_path, spark, lambda frame, batch: batch.write(frame, once.append("bronze")))
    stream.land("a.json", 1, 2)
    stream.run()
    stream.forget_the_last_commit()
    stream.land("b.json", 3)
    stream.run()
    assert stream.ids("bronze") == [1, 2, 3]


def test_of_several_targets_only_the_missing_one_is_written(tmp_path, spark):
    broken = tmp_path / "broken"
    broken.touch()

    def write(frame, batch):
        batch.write(frame, once.append("bronze"))
        if broken.exists():
            raise RuntimeError("killed between two targets")
        batch.write(frame, once.merge("silver", keys="id"))

    stream = Stream(tmp_path, spark, write)
    stream.land("a.json", 1, 2)
    with pytest.raises(Exception, match="killed between two targets"):
        stream.run()
    broken.unlink()
    stream.run()
    assert (stream.ids("bronze"), stream.ids("silver")) == ([1, 2], [1, 2])


def test_a_batch_that_all_targets_have_does_not_call_the_function(tmp_path, spark):
    called = []

    def write(frame, batch):
        called.append(batch.number)
        batch.write(frame, once.append("bronze"))

    stream = Stream(tmp_path, spark, write, targets=["bronze"])
    stream.land("a.json", 1)
    stream.run()
    stream.forget_the_last_commit()
    stream.run()
    assert (called, stream.ids("bronze")) == ([0], [1])


def test_the_options_of_a_plain_write_make_it_once(tmp_path, spark):
    def write(frame, batch):
        writer = frame.write.format("delta").mode("append").options(**batch.marker("bronze"))
        writer.save(str(tmp_path / "lake/bronze"))

    stream = Stream(tmp_path, spark, write)
    stream.land("a.json", 1)
    stream.run()
    stream.forget_the_last_commit()
    stream.run()
    assert stream.ids("bronze") == [1]


def test_a_new_checkpoint_is_refused(tmp_path, spark):
    def write(frame, batch):
        batch.write(frame, once.append("bronze"))

    stream = Stream(tmp_path, spark, write)
    stream.land("a.json", 1)
    stream.run()
    with pytest.raises(Exception, match="from another checkpoint"):
        Stream(tmp_path, spark, write, checkpoint="new").run()
    assert stream.ids("bronze") == [1]


@pytest.mark.parametrize("way", ["write", "marker", "targets"])
@pytest.mark.parametrize("later", [1, 2])
def test_an_older_copy_of_the_checkpoint_is_refused(tmp_path, spark, way, later):
    def write(frame, batch):
        if way == "marker":
            writer = frame.write.format("delta").mode("append").options(**batch.marker("bronze"))
            writer.save(str(tmp_path / "lake/bronze"))
        else:
            batch.write(frame, once.append("bronze"))

    stream = Stream(tmp_path, spark, write, **({"targets": ["bronze"]} if way == "targets" else {}))
    stream.land("a.json", 1)
    stream.run()
    shutil.copytree(stream.checkpoint, tmp_path / "backup")
    for number in range(later):
        stream.land(f"b{number}.json", 2 + number)
        stream.run()
    shutil.rmtree(stream.checkpoint)
    shutil.copytree(tmp_path / "backup", stream.checkpoint)
    # Spark takes it for the next batch, and leaves the others to later ones.
    stream.land("c.json", 7)
    earlier = (tmp_path / "landing" / "a.json").stat().st_mtime - 60
    os.utime(tmp_path / "landing" / "c.json", (earlier, earlier))
    with pytest.raises(Exception, match="its checkpoint is older"):
        stream.run()
    assert stream.ids("bronze") == [1, *range(2, 2 + later)]


def test_what_is_wrong_with_a_guard_is_said_when_it_is_made(tmp_path):
    with pytest.raises(once.OncelakeError, match="names no stream"):
        once.each_batch(lambda frame, batch: None, name="", lake=str(tmp_path))
    with pytest.raises(once.OncelakeError, match="takes a function"):
        once.each_batch(None, name="payments", lake=str(tmp_path))


def test_a_query_that_keeps_state_goes_on_after_a_batch_that_is_done(tmp_path, spark):
    class Counted(Stream):
        def run(self):
            rows = (
                self.spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).json(str(self.root / "landing"))
            )
            totals = rows.groupBy().sum("id").withColumnRenamed("sum(id)", "id").selectExpr("1L AS key", "id")
            writer = totals.writeStream.outputMode("update").foreachBatch(self.guarded)
            writer = writer.option("checkpointLocation", str(self.checkpoint))
            writer.trigger(availableNow=True).start().awaitTermination()

    def write(frame, batch):
        batch.write(frame, once.merge("totals", keys="key"))

    stream = Counted(tmp_path, spark, write)
    stream.land("a.json", 1, 2)
    stream.run()
    stream.forget_the_last_commit()
    stream.land("b.json", 4)
    stream.run()
    assert stream.ids("totals") == [7]
