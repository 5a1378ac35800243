"""List and read small files without a JVM: on the local disk, in an object store, or elsewhere through pyarrow."""

from __future__ import annotations

import errno
import os
import posixpath
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from oncelake.storage.object_store import ObjectFolder, Stamp, is_object_store, store_problem
from oncelake.storage.options import arrow_file_system, object_store
from oncelake.storage.paths import INTERNAL, is_local, local_path

_RETRIES = {"max_retries": 6, "retry_timeout": timedelta(seconds=60)}
# Without conditional puts: how long after its request a file is taken to be seen by all.
_SETTLED = 1.0


class Listing(Protocol):
    """What was in a folder at one time."""

    @property
    def names(self) -> list[str]:
        """The names in the folder."""
        ...

    def stamp(self, name: str) -> Stamp | None:
        """Return the stamp of a file, if possible without another request; None if it does not exist."""
        ...


class Storage(Protocol):
    """One folder that can be listed and read."""

    def listing(self, folder: str = "") -> Listing:
        """Return what is in the folder or a subfolder; empty if it does not exist."""
        ...

    def names(self, folder: str = "") -> list[str]:
        """Return the names in the folder or a subfolder; empty if it does not exist."""
        ...

    def read(self, name: str) -> bytes:
        """Return the content of one file."""
        ...

    def read_all(self, names: Iterable[str]) -> list[bytes | OSError]:
        """Return the contents of several files; an error in the place of one that cannot be read."""
        ...

    def stamp(self, name: str) -> Stamp | None:
        """Return size and modification time, or version, of one file; None if it does not exist."""
        ...

    def open(self, name: str) -> Any:
        """Return a path or file object from which pyarrow can read at any offset."""
        ...


@dataclass(frozen=True)
class _Names:
    """The names in a folder; the stamp of a file is as of when it is asked for."""

    names: list[str]
    place: Storage
    folder: str

    def stamp(self, name: str) -> Stamp | None:
        return self.place.stamp(posixpath.join(self.folder, name))


class _OneByOne:
    """A folder whose files are looked at and read one by one."""

    def listing(self: Storage, folder: str = "") -> Listing:
        return _Names(self.names(folder), self, folder)

    def read_all(self: Storage, names: Iterable[str]) -> list[bytes | OSError]:
        found: list[bytes | OSError] = []
        for name in names:
            try:
                found.append(self.read(name))
            except OSError as error:
                found.append(error)
        return found


class _Local(_OneByOne):
    def __init__(self, folder: str) -> None:
        self._folder = str(local_path(folder))

    def names(self, folder: str = "") -> list[str]:
        try:
            return os.listdir(os.path.join(self._folder, folder))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def read(self, name: str) -> bytes:
        with open(os.path.join(self._folder, name), "rb") as file:
            return file.read()

    def stamp(self, name: str) -> Stamp | None:
        try:
            found = os.stat(os.path.join(self._folder, name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_size, found.st_mtime_ns

    def open(self, name: str) -> Any:
        return os.path.join(self._folder, name)


class _Remote(_OneByOne):
    def __init__(self, folder: str) -> None:
        from pyarrow import fs

        self._fs, self._folder = arrow_file_system(folder)
        self._selector = fs.FileSelector

    def names(self, folder: str = "") -> list[str]:
        path = posixpath.join(self._folder, folder).rstrip("/")
        found = self._fs.get_file_info(self._selector(path, allow_not_found=True))
        return [info.base_name for info in found]

    def read(self, name: str) -> bytes:
        with self.open(name) as file:
            content: bytes = file.read()
        return content

    def stamp(self, name: str) -> Stamp | None:
        info = self._fs.get_file_info(posixpath.join(self._folder, name))
        return (info.size, info.mtime_ns) if info.is_file else None

    def open(self, name: str) -> Any:
        return self._fs.open_input_file(posixpath.join(self._folder, name))


def storage(folder: str) -> Storage:
    """Return the storage of a folder or URI."""
    if is_local(folder):
        return _Local(folder)
    return ObjectFolder(folder) if is_object_store(folder) else _Remote(folder)


def write_file(folder: str, name: str, content: bytes) -> None:
    """Write a small file of ours below a folder, as a whole: a reader sees the old one or the new one."""
    if not is_local(folder):
        store, path = arrow_file_system(posixpath.join(folder, name))
        with store.open_output_stream(path) as stream:
            stream.write(content)
        return
    file = local_path(folder) / name
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=file.parent, prefix=f".{file.name}-", delete=False) as scratch:
        scratch.write(content)
    os.replace(scratch.name, file)


def create_file(folder: str, name: str, content: bytes) -> bool:
    """Write a file of ours below a folder, durably and as a whole, unless there is one. Return whether this call wrote it.

    In a store without conditional puts, who looks at the same time as somebody else may be replaced, and finds that out after
    a pause, as with leases. There the contents of different callers should differ, by a token for instance: if they are equal,
    both are told that theirs was written.
    """
    if is_local(folder):
        return _create_local(local_path(folder) / name, content)
    return _put_if_absent(folder, name, content)


def replace_file(folder: str, name: str, content: bytes) -> None:
    """Write a file of ours below a folder, durably: a reader sees the old one or the new one, also after a power failure."""
    if not is_local(folder):
        _put(folder, name, content)
        return
    file = local_path(folder) / name
    os.replace(_write_scratch(file, content), file)
    _sync(file.parent)


def remove_file(folder: str, name: str) -> None:
    """Remove a file of ours; one that does not exist is fine."""
    with suppress(FileNotFoundError):
        if is_local(folder):
            (local_path(folder) / name).unlink()
            return
        store, path = arrow_file_system(posixpath.join(folder, name))
        store.delete_file(path)


def _create_local(file: Path, content: bytes) -> bool:
    scratch = _write_scratch(file, content)
    try:
        os.link(scratch, file)
    except FileExistsError:
        # Of somebody else; or ours, and a network file system lost the answer.
        return os.path.samefile(scratch, file)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS):
            raise
        if file.exists():  # a file system without links, where nothing better is to be had
            return False
        os.replace(scratch, file)
    finally:
        scratch.unlink(missing_ok=True)
        _sync(file.parent)
    return True


def _put_if_absent(folder: str, name: str, content: bytes) -> bool:
    from oncelake.storage.conditional import try_conditional_puts

    place = storage(folder)
    if try_conditional_puts(folder.partition(f"/{INTERNAL}/")[0]).conditional is False:
        if place.stamp(name) is not None:
            return False
        _put(folder, name, content)
        time.sleep(_SETTLED)
        return place.read(name) == content
    try:
        _put(folder, name, content, mode="create")
    except FileExistsError:
        # Of somebody else; or of this call, and the answer was lost.
        return place.read(name) == content
    return True


def _put(folder: str, name: str, content: bytes, mode: str = "overwrite") -> None:
    store = object_store(folder, retry_config=_RETRIES)
    if store is None:
        write_file(folder, name, content)
        return
    from obstore.exceptions import AlreadyExistsError, BaseError

    try:
        store.put(name, content, mode=mode)
    except AlreadyExistsError as error:
        raise FileExistsError(errno.EEXIST, "it exists", name) from error
    except BaseError as error:
        raise OSError(store_problem(error)) from error


def _write_scratch(file: Path, content: bytes) -> Path:
    """Write a temporary file beside a file, down to the disk. Others may read it, unlike those of `tempfile`."""
    scratch = file.with_name(f".{file.name}-{uuid.uuid4().hex}")
    try:
        _write_new(scratch, content)
    except OSError:  # the disk is full, for instance
        scratch.unlink(missing_ok=True)
        raise
    return scratch


def _write_new(file: Path, content: bytes) -> None:
    """Write a file that does not exist, down to the disk."""
    _make_folder(file.parent)
    with open(file, "xb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, down to the disk."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync(folder.parent)


def _sync(folder: Path) -> None:
    """Write the names in a folder down to the disk, where the file system can."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def create_folder(folder: str, files: Mapping[str, bytes]) -> bool:
    """Create a folder of ours with its files, durably. Return False, and change nothing, if it exists with something in it.

    On the local disk the folder appears with all files at once; in an object store with the first one.
    """
    if storage(folder).names():
        return False
    if not is_local(folder):
        for name, content in files.items():
            _put(folder, name, content)
        return True
    place = local_path(folder)
    scratch = place.with_name(f".{place.name}-{uuid.uuid4().hex}")
    try:
        for name, content in files.items():
            _write_new(scratch / name, content)
        return _rename_if_free(scratch, place)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _rename_if_free(folder: Path, to: Path) -> bool:
    """Rename a folder, over an empty one too, unless there is one with something in it. Return whether it was renamed."""
    try:
        os.rename(folder, to)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        return False
    _sync(to.parent)
    return True


def move_folder(folder: str, to: str) -> None:
    """Move a folder of ours to where nothing is. In an object store its objects are copied, all of them, and then removed."""
    if is_local(folder):
        os.rename(local_path(folder), local_path(to))
        _sync(local_path(to).parent)
        return
    from pyarrow import fs

    store, path = arrow_file_system(folder)
    place = arrow_file_system(to)[1]
    found = [each.path for each in store.get_file_info(fs.FileSelector(path, recursive=True)) if each.is_file]
    for each in found:
        store.copy_file(each, place + each.removeprefix(path))
    store.delete_dir(path)


def remove_folder(folder: str) -> None:
    """Remove a folder of ours with everything in it; one that does not exist is fine."""
    if is_local(folder):
        shutil.rmtree(local_path(folder), ignore_errors=True)
        return
    store, path = arrow_file_system(folder)
    with suppress(FileNotFoundError):
        store.delete_dir(path)
