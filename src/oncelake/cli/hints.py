"""The commands that an output recommends, with the profile and the project of the command that printed them."""

from __future__ import annotations

import re
import shlex
from typing import Any

_COMMANDS = (
    "run|plan|status|history|graph|restate|restore|rebuild|repair|files|quarantine|restart|doctor|prove|fingerprint"
)
# A hint that names a profile itself is left as it is.
_COMMAND = re.compile(rf"\boncelake (?=(?:{_COMMANDS})\b)(?![^;\n]*--profile\b)")
# The fields of documents that have commands for people.
_FIELDS = ("next", "error")


def chosen_options(project: str | None, profile: str | None) -> str:
    """Return the options that choose a project and a profile, as they are typed; empty if neither was given."""
    given = {"--project": project, "--profile": profile}
    return "".join(f"{name} {shlex.quote(value)} " for name, value in given.items() if value)


def add_options(text: str, options: str) -> str:
    """Return a text in which every command of ours has the options: copied, it works on the same lake."""
    return _COMMAND.sub(lambda found: found[0] + options, text) if options else text


def add_to_document(document: Any, options: str) -> Any:
    """Return a document in which the commands of its fields `next` and `error` have the options."""
    if isinstance(document, dict):
        return {key: _field(key, value, options) for key, value in document.items()} if options else document
    return [add_to_document(each, options) for each in document] if isinstance(document, list) and options else document


def _field(key: Any, value: Any, options: str) -> Any:
    is_command = key in _FIELDS and isinstance(value, str)
    return add_options(value, options) if is_command else add_to_document(value, options)
