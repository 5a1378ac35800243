"""The base of all errors: code, exit code, whether a retry helps, facts, and the next command to run."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from enum import Enum
from typing import Any, ClassVar


class Retry(Enum):
    """Whether the same command can succeed when it is retried."""

    HELPS = "helps"
    USELESS = "useless"
    UNKNOWN = "unknown"


class OncelakeError(Exception):
    """An error with a stable `code`, the facts behind it, and the next command to run."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    retry: ClassVar[Retry] = Retry.USELESS
    # The outcome of a work that ends with this error, and whether smaller slices of the work may succeed.
    outcome: ClassVar[str] = "failed"
    splittable: ClassVar[bool] = False
    # Whether the run ends: the fault is the machine's, and every other work would meet it too.
    stops_run: ClassVar[bool] = False
    says: ClassVar[str] = "{message}"
    hint: ClassVar[str] = ""

    def __init__(self, **facts: Any) -> None:
        """Store the facts and format the message and the hint from them."""
        self.facts = facts
        self.message = self.says.format(**facts)
        self.next = self.hint.format(**facts)
        super().__init__(self.message)

    def retry_with(self, instead: str, command: str | None = None) -> None:
        """Name another way to retry where the next step is `oncelake run` of the pipeline (or another command)."""
        command = command or f"oncelake run {self.facts.get('pipeline', '')}"
        self.next = self.next.replace(f"run: {command}", instead).replace(command, instead)

    def __str__(self) -> str:
        """Return the message and, if there is one, the next command."""
        return f"{self.message}\n  next: {self.next}" if self.next else self.message


def all_errors() -> Iterator[type[OncelakeError]]:
    """Yield every class of errors."""
    waiting = [OncelakeError]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += found.__subclasses__()


def did_you_mean(word: str, known: tuple[str, ...] | list[str]) -> str:
    """Return ` (did you mean …?)` with the closest known word, or an empty string."""
    near = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
