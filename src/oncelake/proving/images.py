"""Crash images: what a kill after each call of a recorded run would leave on disk, rebuilt from the journal."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from oncelake.errors import ProverUnavailable
from oncelake.proving.calls import Call


@dataclass(frozen=True)
class JournalEntry:
    """A file, folder or link. A file's bytes are those of an earlier state of it, cut, with a piece laid over."""

    kind: str  # "file", "folder" or "link"
    digest: bytes
    size: int = 0
    before: JournalEntry | None = None
    piece: tuple[str, int, int, int] | None = None  # where its bytes are: file, position, length; and where they go
    target: str = ""

    def content(self) -> bytes:
        """The bytes of a file."""
        entry: JournalEntry | None = self
        chain: list[JournalEntry] = []
        while entry is not None:
            chain.append(entry)
            entry = entry.before
        data = bytearray()
        for step in reversed(chain):
            if step.piece is not None:
                name, position, length, offset = step.piece
                with open(name, "rb") as file:
                    file.seek(position)
                    data[len(data) :] = bytes(max(0, offset - len(data)))
                    data[offset : offset + length] = file.read(length)
            del data[step.size :]
            data[len(data) :] = bytes(step.size - len(data))
        return bytes(data)


Tree = Mapping[str, JournalEntry]
FOLDER = JournalEntry("folder", b"folder")
_GONE = " (deleted)"  # how the kernel names an open file that has no name any more
_EMPTY = JournalEntry("file", hashlib.blake2b(b"").digest())


@dataclass(frozen=True)
class Image:
    """The state after a call: 0 is the state before the first."""

    number: int
    after: Call | None
    tree: Tree
    key: bytes


@dataclass(frozen=True)
class Folders:
    """The watched folders: the names a job knows them by, and where they really are."""

    known: tuple[str, ...]
    real: tuple[Path, ...]

    def inner(self, path: str) -> str:
        """The path as it stands in a tree: the number of its folder, then the rest."""
        for index, folder in enumerate(self.known):
            if path == folder or path.startswith(f"{folder}/"):
                return f"{index}{path[len(folder) :]}"
        raise LookupError(path)

    def outer(self, inner: str) -> Path:
        """Where a path of a tree really is."""
        index, _, rest = inner.partition("/")
        return self.real[int(index)] / rest


def scan(folders: Folders, keep: Path) -> dict[str, JournalEntry]:
    """The tree that is on disk now; its files are copied to `keep`, for the folders will change."""
    tree: dict[str, JournalEntry] = {}
    for index, root in enumerate(folders.real):
        if not root.exists():
            continue
        tree[str(index)] = FOLDER
        for folder, names, files in os.walk(root):
            inner = f"{index}/{os.path.relpath(folder, root)}".removesuffix("/.")
            tree |= {f"{inner}/{name}": FOLDER for name in names}
            for name in files:
                tree[f"{inner}/{name}"] = _scanned(Path(folder, name), keep / f"{len(tree)}")
    return tree


def _scanned(path: Path, copy: Path) -> JournalEntry:
    if path.is_symlink():
        target = os.readlink(path)
        return JournalEntry("link", target.encode(), target=target)
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, copy)
    size = copy.stat().st_size
    return _written(_EMPTY, (str(copy), 0, size, 0), copy.read_bytes()) if size else _EMPTY


def _written(before: JournalEntry, piece: tuple[str, int, int, int], data: bytes) -> JournalEntry:
    digest = hashlib.blake2b(before.digest + piece[3].to_bytes(8, "little") + data).digest()
    return JournalEntry("file", digest, max(before.size, piece[3] + len(data)), before, piece)


def images(start: Tree, calls: Iterable[Call], journal: Path, folders: Folders) -> list[Image]:
    """The state before the first call and after each, in order."""
    replay = _Replay(start, journal, folders)
    found = [Image(0, None, dict(start), _key(start))]
    with journal.open("rb") as data:
        for call in calls:
            if not call.failed and not call.path.endswith(_GONE):
                data.seek(call.position)
                replay.apply(call, data.read(call.length))
            found.append(Image(call.number, call, dict(replay.tree), _key(replay.tree)))
    return found


class _Replay:
    """A tree that changes as the calls say. A file may have several names: what is written under one, all have."""

    def __init__(self, start: Tree, journal: Path, folders: Folders) -> None:
        self.tree = dict(start)
        self._journal, self._folders = str(journal), folders
        self._names = {path: {path} for path in start}

    def apply(self, call: Call, data: bytes) -> None:
        path, tree = self._folders.inner(call.path), self.tree
        to = self._folders.inner(call.to) if call.to else ""
        if call.kind == "create":
            self._add(path, _EMPTY)
        elif call.kind == "mkdir":
            self._add(path, FOLDER)
        elif call.kind == "symlink":
            self._add(path, JournalEntry("link", data, target=os.fsdecode(data)))
        elif path not in tree:
            return  # `check_complete` will say that its making went unseen
        elif call.kind == "write":
            self._change(path, _written(tree[path], (self._journal, call.position, call.length, call.offset), data))
        elif call.kind == "truncate":
            self._change(path, _cut(tree[path], call.offset))
        elif call.kind == "link":
            self._names[path].add(to)
            self.tree[to], self._names[to] = tree[path], self._names[path]
        elif call.kind == "rename":
            for name in (path, *[name for name in tree if name.startswith(f"{path}/")]):
                self._move(name, to + name[len(path) :])
        else:
            self._remove(path)

    def _add(self, path: str, entry: JournalEntry) -> None:
        self.tree[path], self._names[path] = entry, {path}

    def _change(self, path: str, entry: JournalEntry) -> None:
        self.tree |= dict.fromkeys(self._names[path], entry)

    def _move(self, path: str, to: str) -> None:
        if to in self.tree:
            self._remove(to)
        names = self._names.pop(path)
        names.remove(path)
        names.add(to)
        self.tree[to], self._names[to] = self.tree.pop(path), names

    def _remove(self, path: str) -> None:
        del self.tree[path]
        self._names.pop(path).discard(path)


def _cut(entry: JournalEntry, size: int) -> JournalEntry:
    if size == 0:
        return _EMPTY
    return replace(_EMPTY, digest=hashlib.blake2b(entry.digest + b"cut%d" % size).digest(), size=size, before=entry)


def _key(tree: Tree) -> bytes:
    digest = hashlib.blake2b()
    for path in sorted(tree):
        digest.update(path.encode(errors="surrogateescape") + b"\0" + tree[path].digest + b"\0")
    return digest.digest()


def distinct(found: Sequence[Image]) -> list[Image]:
    """The images that differ, the first of each kind: recovering the same state twice shows nothing new."""
    return list({image.key: image for image in reversed(found)}.values())[::-1]


def restore(tree: Tree, folders: Folders) -> None:
    """Put a tree on disk in place of whatever is there."""
    for root in folders.real:
        if root.exists():
            shutil.rmtree(root)
    for inner in sorted(tree):
        entry, path = tree[inner], folders.outer(inner)
        if entry.kind == "folder":
            path.mkdir(parents=True, exist_ok=True)
        elif entry.kind == "link":
            path.symlink_to(entry.target)
        else:
            path.write_bytes(entry.content())


def names(folders: Folders) -> set[str]:
    """The paths that are on disk now, as they stand in a tree."""
    return {
        f"{index}/{path.relative_to(root)}".removesuffix("/.")
        for index, root in enumerate(folders.real)
        if root.exists()
        for path in (root, *root.rglob("*"))
    }


def check_complete(tree: Tree, folders: Folders) -> None:
    """Refuse a recording whose end is not what is on disk: a call went unseen, and its images would be wrong."""
    wrong = sorted(tree.keys() ^ names(folders))
    wrong = wrong or [inner for inner in sorted(tree) if not _same(tree[inner], folders.outer(inner))]
    if wrong:
        problem = f"the recorder did not see how {folders.outer(wrong[0])} was changed"
        raise ProverUnavailable(problem=problem, next="oncelake prove --level steps")


def _same(entry: JournalEntry, path: Path) -> bool:
    return entry.kind != "file" or path.read_bytes() == entry.content()
