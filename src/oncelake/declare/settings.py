"""Read `oncelake.yaml` into one frozen record; an unknown key is an error with its line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oncelake.declare.spark_settings import check_spark_setting, read_spark_setting
from oncelake.declare.store import STORAGE_KEYS, StoreSettings, read_store, refuse_literal_secrets
from oncelake.declare.yaml_lines import read_yaml
from oncelake.errors import BadSettings
from oncelake.errors.base import did_you_mean
from oncelake.model.names import lake_path

FILE = "oncelake.yaml"
_KEYS = ("lake", "checkpoints", "id", "pipelines", "profiles", "spark", "storage", "lock_timeout", "register")
_PROFILE_KEYS = ("lake", "checkpoints", "spark", "storage", "lock_timeout", "register")
LOCK_TIMEOUT = 900


@dataclass(frozen=True)
class Settings:
    """A project's settings: its lake and store, the pipelines to load, Spark settings, the lock timeout in seconds, its id.

    `register` is True for all targets, or names those that become known to the session's catalog.
    """

    root: Path
    lake: str
    pipelines: Any = None
    # Not part of its text: the address of a Connect server may have a token.
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)
    lock_timeout: float = LOCK_TIMEOUT
    lines: Mapping[tuple[Any, ...], int] = field(default_factory=dict)
    id: str | None = None
    store: StoreSettings = field(default_factory=StoreSettings)
    profile: str | None = None
    register: bool | tuple[str, ...] = False
    # The folder or URI for the checkpoints of streams; None for the lake.
    checkpoints: str | None = None

    def at(self, *path: Any) -> str:
        """Return the `file:line` of a key of the settings."""
        return f"{FILE}:{self.lines.get(path, 1)}"


def read_settings(root: Path, profile: str | None = None) -> Settings:
    """Return the settings of the project in a folder, with a profile if one is named."""
    path = root / FILE
    if not path.is_file():
        problem = f"there is no {FILE} in {root}"
        raise BadSettings(where=str(path), problem=f"{problem}; `oncelake init DIR` creates a project")
    document, lines = read_yaml(path, FILE)
    settings = _Document(document, lines)
    settings.check_keys((), document, _KEYS)
    profiles = settings.mapping("profiles")
    for name in profiles:
        body = settings.mapping("profiles", name)
        settings.check_keys(("profiles", name), body, _PROFILE_KEYS)
        settings.lake(body.get("lake", "lake"), "profiles", name, "lake")
        settings.check_storage("profiles", name, "storage")
        settings.check_spark("profiles", name, "spark")
    if profile is not None and profile not in profiles:
        known = ", ".join(map(str, profiles)) or "none"
        raise BadSettings(
            where=settings.at("profiles"), problem=f"there is no profile {profile!r}; the profiles are: {known}"
        )
    selected = settings.mapping("profiles", profile) if profile is not None else {}
    lake_key = ("profiles", profile) if profile is not None and "lake" in selected else ()
    timeout_path = ("profiles", profile) if "lock_timeout" in selected else ()
    spark = {**settings.spark("spark"), **(settings.spark("profiles", profile, "spark") if profile else {})}
    return Settings(
        root=root,
        lake=lake_path(settings.lake(selected.get("lake", document.get("lake", "lake")), *lake_key, "lake"), root),
        pipelines=document.get("pipelines"),
        spark=spark,
        lock_timeout=settings.seconds(
            selected.get("lock_timeout", document.get("lock_timeout", LOCK_TIMEOUT)), *timeout_path, "lock_timeout"
        ),
        lines=lines,
        id=settings.id(),
        store=settings.store(root, profile),
        profile=profile,
        checkpoints=settings.checkpoints(root, profile),
        register=settings.register("profiles", profile, "register")
        if "register" in selected
        else settings.register("register"),
    )


class _Document:
    """A YAML mapping and the line of each key."""

    def __init__(self, document: dict[Any, Any], lines: Mapping[tuple[Any, ...], int]) -> None:
        self.document = document
        self.lines = lines

    def at(self, *path: Any) -> str:
        return f"{FILE}:{self.lines.get(path, 1)}"

    def mapping(self, *path: Any) -> dict[Any, Any]:
        found: Any = self.document
        for key in path:
            found = found.get(key) if isinstance(found, dict) else None
        if found is None:
            return {}
        if not isinstance(found, dict):
            # What stands in place of `storage` may be a secret.
            kind = type(found).__name__ if path[-1] == "storage" else repr(found)
            raise BadSettings(where=self.at(*path), problem=f"{path[-1]} must be a mapping, not {kind}")
        return found

    def check_keys(self, path: tuple[Any, ...], found: Mapping[Any, Any], known: tuple[str, ...]) -> None:
        for key in found:
            if key not in known:
                problem = f"unknown key {key!r}{did_you_mean(str(key), known)}; known keys are: {', '.join(known)}"
                raise BadSettings(where=self.at(*path, key), problem=problem)

    def lake(self, value: Any, *path: Any) -> str:
        try:
            lake_path(value)
        except ValueError as error:
            raise BadSettings(where=self.at(*path), problem=str(error)) from error
        return str(value)

    def checkpoints(self, root: Path, profile: str | None) -> str | None:
        path = ("profiles", profile) if profile and "checkpoints" in self.mapping("profiles", profile) else ()
        value = (self.mapping(*path) if path else self.document).get("checkpoints")
        if value is None:
            return None
        try:
            return lake_path(value, root)
        except ValueError as error:
            raise BadSettings(where=self.at(*path, "checkpoints"), problem=f"checkpoints: {error}") from error

    def id(self) -> str | None:
        value = self.document.get("id")
        if value is None and "id" not in self.document:
            return None
        if isinstance(value, bool) or not isinstance(value, int | str) or not str(value).strip():
            raise BadSettings(where=self.at("id"), problem=f"id must be a text, not {value!r}")
        return str(value)

    def check_storage(self, *path: Any) -> dict[Any, Any]:
        values = self.mapping(*path)
        self.check_keys(path, values, STORAGE_KEYS)
        refuse_literal_secrets(values, lambda key: self.at(*path, key))
        return values

    def store(self, root: Path, profile: str | None) -> StoreSettings:
        own = self.mapping("profiles", profile, "storage") if profile else {}

        def at(key: str) -> str:
            return self.at("profiles", profile, "storage", key) if key in own else self.at("storage", key)

        return read_store({**self.check_storage("storage"), **own}, root, at)

    def register(self, *path: Any) -> bool | tuple[str, ...]:
        value = self.mapping(*path[:-1]).get("register", False) if path[:-1] else self.document.get("register", False)
        if isinstance(value, bool):
            return value
        names = [value] if isinstance(value, str) else value
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            problem = f"register must be true, false or a list of targets, not {value!r}"
            raise BadSettings(where=self.at(*path), problem=problem)
        return tuple(names)

    def seconds(self, value: Any, *path: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise BadSettings(where=self.at(*path), problem=f"{path[-1]} must be a number of seconds, not {value!r}")
        return float(value)

    def spark(self, *path: Any) -> dict[str, str]:
        values = self.check_spark(*path)
        return {key: read_spark_setting(key, value, self.at(*path, key)) for key, value in values.items()}

    def check_spark(self, *path: Any) -> dict[str, str]:
        values = self.mapping(*path)
        texts: dict[str, str] = {}
        for key, value in values.items():
            if not isinstance(key, str) or isinstance(value, dict | list) or value is None:
                problem = f"a Spark setting must be a name with one value, not {key!r}: {value!r}"
                raise BadSettings(where=self.at(*path, key), problem=problem)
            texts[key] = str(value).lower() if isinstance(value, bool) else str(value)
            check_spark_setting(key, texts[key], self.at(*path, key))
        return texts
