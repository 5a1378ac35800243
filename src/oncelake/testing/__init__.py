"""For tests, yours and ours: run a job twice and compare, a log in memory, a listener that remembers what it heard."""

from oncelake.testing.idempotency import assert_idempotent
from oncelake.testing.memory_log import MemoryLog
from oncelake.testing.recording_listener import RecordingListener

__all__ = ["MemoryLog", "RecordingListener", "assert_idempotent"]
