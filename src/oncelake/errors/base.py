"""What every error has: a code, an exit code, whether a retry helps, its facts and the next command."""

from __future__ import annotations

import difflib
from enum import Enum
from typing import Any, ClassVar


class Retry(Enum):
    """What doing the same again would bring."""

    HELPS = "helps"
    USELESS = "useless"
    UNKNOWN = "unknown"


class OncelakeError(Exception):
    """Something oncelake can explain: what, where, what is committed, and the command to type next."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = 1
    retry: ClassVar[Retry] = Retry.USELESS
    says: ClassVar[str] = "{message}"
    hint: ClassVar[str] = ""

    def __init__(self, **facts: Any) -> None:
        """Keep the facts and write the message from them."""
        self.facts = facts
        self.message = self.says.format(**facts)
        self.next = self.hint.format(**facts)
        super().__init__(self.message)

    def __str__(self) -> str:
        """Say what happened and, where there is one, the command to type next."""
        return f"{self.message}\n  next: {self.next}" if self.next else self.message


def did_you_mean(word: str, known: tuple[str, ...] | list[str]) -> str:
    """`, did you mean …?` for a word that is nearly one of those known."""
    near = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""
