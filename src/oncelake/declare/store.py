"""`storage:` of `oncelake.yaml`: where an object store is and how it is reached. Secrets are named there, never written."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oncelake.errors import BadSettings

STORAGE_KEYS = ("endpoint", "region", "path_style", "allow_http", "access_key", "secret_key", "session_token")
_SECRETS = ("access_key", "secret_key", "session_token")
_FLAGS = ("path_style", "allow_http")
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_FILE = "file:"
Where = Callable[..., str]


@dataclass(frozen=True)
class StoreSettings:
    """How an object store is reached; None leaves a setting to the environment. Secrets are not part of the text."""

    endpoint: str | None = None
    region: str | None = None
    path_style: bool | None = None
    allow_http: bool | None = None
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)


def read_store(values: Mapping[str, Any], root: Path, at: Where) -> StoreSettings:
    """Return the settings of a store, with `${NAME}` and `file:PATH` replaced by what they name. `at` gives a key's line."""
    refuse_literal_secrets(values, at)
    found: dict[str, Any] = {}
    for key, value in values.items():
        if value is None:
            continue
        if key in _FLAGS:
            if not isinstance(value, bool):
                raise BadSettings(where=at(key), problem=f"{key} must be true or false, not {value!r}")
            found[key] = value
        else:
            found[key] = _secret(key, value, root, at) if key in _SECRETS else _text(key, value, at)
    _check_endpoint(found, at)
    if ("access_key" in found) != ("secret_key" in found):
        present, absent = ("access_key", "secret_key") if "access_key" in found else ("secret_key", "access_key")
        raise BadSettings(where=at(present), problem=f"{present} is set without {absent}")
    return StoreSettings(**found)


def refuse_literal_secrets(values: Mapping[str, Any], at: Where) -> None:
    """Refuse a secret that is written out, also in a profile that is not used now."""
    for key in _SECRETS:
        value = values.get(key)
        if value is None or (isinstance(value, str) and (_VARIABLE.fullmatch(value) or value.startswith(_FILE))):
            continue
        # The value is in no message: it is the secret itself.
        problem = f"{key} must not be written here: name an environment variable, ${{NAME}}, or a file, file:PATH"
        raise BadSettings(where=at(key), problem=problem)


def _secret(key: str, value: str, root: Path, at: Where) -> str:
    if not value.startswith(_FILE):
        return expand(value, at(key))
    path = root / Path(value.removeprefix(_FILE)).expanduser()
    try:
        content = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        problem = f"the file of {key} cannot be read: {type(error).__name__}"
        raise BadSettings(where=at(key), problem=problem) from None
    if not content:
        raise BadSettings(where=at(key), problem=f"the file of {key} is empty")
    return content


def _text(key: str, value: Any, at: Where) -> str:
    if not isinstance(value, str) or not value.strip():
        raise BadSettings(where=at(key), problem=f"{key} must be a text, not {value!r}")
    return expand(value, at(key))


def expand(value: str, where: str) -> str:
    """Return a text with every `${NAME}` replaced by the environment variable; BadSettings if one is not set."""

    def variable(found: re.Match[str]) -> str:
        content = os.environ.get(found.group(1))
        if not content:
            raise BadSettings(where=where, problem=f"the environment variable {found.group(1)} is not set")
        return content

    return _VARIABLE.sub(variable, value)


def _check_endpoint(found: Mapping[str, Any], at: Where) -> None:
    endpoint = found.get("endpoint")
    if endpoint is None:
        return
    if not re.fullmatch(r"https?://[^/\s@?#]+/?", endpoint):
        # Not shown: an address may carry a password.
        problem = "endpoint must look like https://host:port, without user, path or query"
        raise BadSettings(where=at("endpoint"), problem=problem)
    if endpoint.startswith("http://") and not found.get("allow_http"):
        problem = "endpoint is http, which is not encrypted; if that is meant, add: allow_http: true"
        raise BadSettings(where=at("endpoint"), problem=problem)
