"""Crash images: the state that a kill after each call of a recorded run would leave on disk, rebuilt from the journal."""

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
class TreeEntry:
    """A file, folder or link. A file's bytes are those of its earlier state, truncated, with a piece written over it."""

    kind: str  # "file", "folder" or "link"
    digest: bytes
    size: int = 0
    before: TreeEntry | None = None
    piece: tuple[str, int, int, int] | None = (
        None  # where the bytes are (file, position, length), and their offset in the result
    )
    target: str = ""

    def content(self) -> bytes:
        """Return the bytes of a file."""
        entry: TreeEntry | None = self
        chain: list[TreeEntry] = []
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


Tree = Mapping[str, TreeEntry]
FOLDER = TreeEntry("folder", b"folder")
_DELETED = " (deleted)"  # the suffix that the kernel gives to an open file without a name
_EMPTY = TreeEntry("file", hashlib.blake2b(b"").digest())


@dataclass(frozen=True)
class Image:
    """The state after a call; number 0 is the state before the first call."""

    number: int
    after: Call | None
    tree: Tree
    key: bytes


@dataclass(frozen=True)
class Folders:
    """The watched folders: the paths that a job uses, and the real paths."""

    known: tuple[str, ...]
    real: tuple[Path, ...]

    def inner(self, path: str) -> str:
        """Return the path used in a tree: the number of its folder, then the rest."""
        for index, folder in enumerate(self.known):
            if path == folder or path.startswith(f"{folder}/"):
                return f"{index}{path[len(folder) :]}"
        raise LookupError(path)

    def outer(self, inner: str) -> Path:
        """Return the real path of a path in a tree."""
        index, _, rest = inner.partition("/")
        return self.real[int(index)] / rest


def scan_tree(folders: Folders, keep: Path) -> dict[str, TreeEntry]:
    """Return the tree that is on disk now. Its files are copied to `keep`, because the folders will change."""
    tree: dict[str, TreeEntry] = {}
    for index, root in enumerate(folders.real):
        if not root.exists():
            continue
        tree[str(index)] = FOLDER
        for folder, names, files in os.walk(root):
            inner = f"{index}/{os.path.relpath(folder, root)}".removesuffix("/.")
            tree |= {f"{inner}/{name}": FOLDER for name in names}
            for name in files:
                tree[f"{inner}/{name}"] = _scan_file(Path(folder, name), keep / f"{len(tree)}")
    return tree


def _scan_file(path: Path, copy: Path) -> TreeEntry:
    if path.is_symlink():
        target = os.readlink(path)
        return TreeEntry("link", target.encode(), target=target)
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, copy)
    size = copy.stat().st_size
    return _write(_EMPTY, (str(copy), 0, size, 0), copy.read_bytes()) if size else _EMPTY


def _write(before: TreeEntry, piece: tuple[str, int, int, int], data: bytes) -> TreeEntry:
    digest = hashlib.blake2b(before.digest + piece[3].to_bytes(8, "little") + data).digest()
    return TreeEntry("file", digest, max(before.size, piece[3] + len(data)), before, piece)


def build_images(start: Tree, calls: Iterable[Call], journal: Path, folders: Folders) -> list[Image]:
    """Return the state before the first call and after each call, in order."""
    replay = _Replay(start, journal, folders)
    found = [Image(0, None, dict(start), _hash_tree(start))]
    with journal.open("rb") as data:
        for call in calls:
            if not call.failed and not call.path.endswith(_DELETED):
                data.seek(call.position)
                replay.apply(call, data.read(call.length))
            found.append(Image(call.number, call, dict(replay.tree), _hash_tree(replay.tree)))
    return found


class _Replay:
    """A tree to which calls are applied. A file may have several names (hard links), which share its content."""

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
            self._add(path, TreeEntry("link", data, target=os.fsdecode(data)))
        elif path not in tree:
            return  # `check_complete` will report that its creation was not recorded
        elif call.kind == "write":
            self._change(path, _write(tree[path], (self._journal, call.position, call.length, call.offset), data))
        elif call.kind == "truncate":
            self._change(path, _truncate(tree[path], call.offset))
        elif call.kind == "link":
            self._names[path].add(to)
            self.tree[to], self._names[to] = tree[path], self._names[path]
        elif call.kind == "rename":
            for name in (path, *[name for name in tree if name.startswith(f"{path}/")]):
                self._move(name, to + name[len(path) :])
        else:
            self._remove(path)

    def _add(self, path: str, entry: TreeEntry) -> None:
        self.tree[path], self._names[path] = entry, {path}

    def _change(self, path: str, entry: TreeEntry) -> None:
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


def _truncate(entry: TreeEntry, size: int) -> TreeEntry:
    if size == 0:
        return _EMPTY
    return replace(_EMPTY, digest=hashlib.blake2b(entry.digest + b"cut%d" % size).digest(), size=size, before=entry)


def _hash_tree(tree: Tree) -> bytes:
    digest = hashlib.blake2b()
    for path in sorted(tree):
        digest.update(path.encode(errors="surrogateescape") + b"\0" + tree[path].digest + b"\0")
    return digest.digest()


def distinct_images(found: Sequence[Image]) -> list[Image]:
    """Return the first image of each distinct state: recovering the same state twice shows nothing new."""
    return list({image.key: image for image in reversed(found)}.values())[::-1]


def restore_tree(tree: Tree, folders: Folders) -> None:
    """Replace the content of the folders with a tree."""
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


def list_paths(folders: Folders) -> set[str]:
    """Return the paths that are on disk now, as used in a tree."""
    return {
        f"{index}/{path.relative_to(root)}".removesuffix("/.")
        for index, root in enumerate(folders.real)
        if root.exists()
        for path in (root, *root.rglob("*"))
    }


def check_complete(tree: Tree, folders: Folders) -> None:
    """Raise if a recording does not end in the state on disk: a call was missed, and its images would be wrong."""
    wrong = sorted(tree.keys() ^ list_paths(folders))
    wrong = wrong or [inner for inner in sorted(tree) if not _has_content(tree[inner], folders.outer(inner))]
    if wrong:
        problem = f"the recorder missed a change of {folders.outer(wrong[0])}"
        raise ProverUnavailable(problem=problem, next="oncelake prove --level steps")


def _has_content(entry: TreeEntry, path: Path) -> bool:
    return entry.kind != "file" or path.read_bytes() == entry.content()
