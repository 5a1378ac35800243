"""The pinned schema of a source: numbered files in the lake that people can read. The old ones are its history."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from oncelake.sources.arrivals.schema_types import parse_type, type_name
from oncelake.storage.objects import create_file, storage

_FOLDER = "schema"
_FILE = re.compile(r"([0-9]{4,})\.json")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


@dataclass(frozen=True)
class PinnedSchema:
    """One version of the schema by which files are read, why there is this version, since when, and the batch that needed it."""

    version: int
    schema: pa.Schema
    reason: str
    at: str = field(default_factory=_now)
    batch: int | None = None

    def to_json(self) -> str:
        """Return the content of the version's file."""
        columns = {each.name: type_name(each.type) for each in self.schema}
        body: dict[str, Any] = {"version": self.version, "at": self.at, "reason": self.reason}
        body |= {} if self.batch is None else {"batch": self.batch}
        body["columns"] = columns
        return json.dumps(body, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> PinnedSchema:
        """Return the version that a file contains; raise ValueError if it contains none."""
        try:
            body: dict[str, Any] = json.loads(text)
            columns = [pa.field(name, parse_type(spelled)) for name, spelled in body["columns"].items()]
            batch = None if body.get("batch") is None else int(body["batch"])
            return cls(int(body["version"]), pa.schema(columns), str(body["reason"]), str(body["at"]), batch)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a pinned schema ({type(error).__name__}: {error})") from error


@dataclass(frozen=True)
class SchemaStore:
    """The versions of a pinned schema below a folder of the lake: `schema/0001.json`, `schema/0002.json` and so on."""

    folder: str

    def versions(self) -> list[int]:
        """Return the numbers of the versions, the oldest first."""
        names = storage(self.folder).names(_FOLDER)
        return sorted(int(found[1]) for name in names if (found := _FILE.fullmatch(name)))

    def newest(self) -> PinnedSchema | None:
        """Return the newest version; None if no schema was pinned yet."""
        versions = self.versions()
        return self.load(versions[-1]) if versions else None

    def newest_before(self, batch: int) -> PinnedSchema | None:
        """Return the newest version that was not pinned for a batch: a batch that failed may need another one now."""
        found = (self.load(version) for version in reversed(self.versions()))
        return next((pinned for pinned in found if pinned.batch != batch), None)

    def pin(self, wanted: PinnedSchema, batch: int) -> PinnedSchema:
        """Return the newest version, after it was made the wanted schema if it is another one."""
        while True:
            newest = self.newest()
            if newest is not None and newest.schema.equals(wanted.schema):
                return newest
            number = newest.version + 1 if newest else 1
            # A version of the store that is wanted again: what came after it was pinned by tries that failed.
            again = newest is not None and wanted.version <= newest.version and self.load(wanted.version) == wanted
            reason = f"version {wanted.version} again, after batch {batch} failed" if again else wanted.reason
            pinned = PinnedSchema(number, wanted.schema, reason, batch=batch)
            if self.save(pinned):
                return pinned

    def load(self, version: int) -> PinnedSchema:
        """Return one version; raise FileNotFoundError if there is none, ValueError if its file is damaged."""
        name = _name(version)
        try:
            found = PinnedSchema.from_json(storage(self.folder).read(name).decode())
        except ValueError as error:
            raise ValueError(f"{self.folder}/{name}: {error}") from error
        if found.version != version:
            raise ValueError(f"{self.folder}/{name}: it contains version {found.version}")
        return found

    def history(self) -> list[PinnedSchema]:
        """Return all versions, the oldest first."""
        return [self.load(version) for version in self.versions()]

    def save(self, pinned: PinnedSchema) -> bool:
        """Write a version; False if there is one of that number already, which another runner wrote and which stays."""
        return create_file(self.folder, _name(pinned.version), pinned.to_json().encode())


def _name(version: int) -> str:
    return f"{_FOLDER}/{version:04d}.json"
