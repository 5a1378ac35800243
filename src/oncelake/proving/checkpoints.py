"""Cases of a stream's checkpoint: entries that a kill leaves out, and checkpoints that would lose or double rows."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from oncelake.errors import CheckpointBehind, CheckpointCopied, CheckpointLost
from oncelake.proving.cases import Case
from oncelake.proving.changed_world import expect_refusal
from oncelake.proving.crashes import Recording, recover
from oncelake.proving.testbed import Testbed
from oncelake.proving.verdict import Violation
from oncelake.storage.paths import INTERNAL
from oncelake.storage.stream_checkpoint import COMMITS, METADATA, OFFSETS, remove_entries

_FIRST_OFFSET = re.compile(r"/checkpoint/offsets/\.0\.[^/]*$|/checkpoint/offsets/0$")


def checkpoints(testbed: Testbed, recording: Recording) -> Iterator[Case]:
    """Damage the checkpoint: what a kill can leave is recovered, everything else is refused, and nothing is written."""
    if not testbed.job.is_stream:
        return
    story = "the last entry of the commit log removed, then started again"
    yield Case("checkpoint:commit-removed", "checkpoint", story, partial(_repeat_batch, testbed))
    for number in recording.calls:
        call = recording.call(number)
        if _FIRST_OFFSET.search(call.to or call.path):
            name = f"checkpoint:first-offset:{recording.names[number]}"
            execute = partial(recover, testbed, recording.images[number])
            yield Case(name, "checkpoint", recording.describe_crash(recording.images[number]), execute)
    for name, (story, code, damage) in _REFUSED.items():
        execute = partial(_refuse, testbed, code, damage)
        yield Case(f"checkpoint:{name}", "checkpoint", story, execute)


def _folder(testbed: Testbed) -> Path:
    """Return the folder of the checkpoint after a run."""
    (found,) = (testbed.folders.real[0] / INTERNAL / "streams").glob("*/*/checkpoint")
    return found


def _numbers(folder: Path, part: str) -> list[int]:
    return sorted(int(path.name) for path in (folder / part).iterdir() if path.name.isdigit())


def _repeat_batch(testbed: Testbed) -> Violation | None:
    """Spark repeats a batch without an entry in its commit log; each target has it already."""
    testbed.reset()
    testbed.run()
    folder = _folder(testbed)
    remove_entries(str(folder), [f"{COMMITS}/{_numbers(folder, COMMITS)[-1]}"])
    return testbed.judge(testbed.rerun())


def _refuse(testbed: Testbed, code: str, damage: Callable[[Path], None]) -> Violation | None:
    testbed.reset()
    testbed.run()
    before = testbed.fingerprints()
    damage(_folder(testbed))
    return expect_refusal(testbed, testbed.run(), code, before)


def _forget_later_batches(folder: Path) -> None:
    """Leave the checkpoint as it was after the first batch, as a backup of it would be."""
    names = [f"{part}/{number}" for part in (OFFSETS, COMMITS) for number in _numbers(folder, part)[1:]]
    remove_entries(str(folder), names)


def _take_other_query(folder: Path) -> None:
    """Give the checkpoint the id of another query, as a copy from elsewhere has."""
    (folder / METADATA).write_text(json.dumps({"id": "00000000-0000-0000-0000-000000000000"}))
    (folder / f".{METADATA}.crc").unlink(missing_ok=True)


_REFUSED: dict[str, tuple[str, str, Callable[[Path], None]]] = {
    "lost": ("the checkpoint deleted", CheckpointLost.code, shutil.rmtree),
    "older": ("an older checkpoint put in its place", CheckpointBehind.code, _forget_later_batches),
    "copied": ("the checkpoint of another query put in its place", CheckpointCopied.code, _take_other_query),
}
