"""A folder of an object store, one request per object: a listing has sizes and versions too, and objects are read in parallel."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import Any, TypeVar

from oncelake.errors import LakeUnreachable
from oncelake.storage.options import StoreOptions, is_s3, options_for, s3_uri

Stamp = tuple[int, str | int]
T = TypeVar("T")
R = TypeVar("R")
# The maximum number of concurrent requests, over all tables.
PARALLEL = 16
# Objects up to this size are read as a whole, by one request; of larger ones only the parts that are needed.
_WHOLE = 16 * 1024 * 1024
_CODE = re.compile(r"<Code>([^<]+)</Code>")


def is_object_store(folder: str) -> bool:
    """Return whether a URI is read by obstore: S3, if it is installed. Other stores were not tried, and are left to pyarrow."""
    return is_s3(folder) and find_spec("obstore") is not None


@dataclass(frozen=True)
class ObjectListing:
    """The objects and folders in a folder, as one listing said."""

    stamps: dict[str, Stamp | None]

    @property
    def names(self) -> list[str]:
        """The names in the folder."""
        return list(self.stamps)

    def stamp(self, name: str) -> Stamp | None:
        """Return size and version of an object at that time; None if there was none."""
        return self.stamps.get(name)


class ObjectFolder:
    """One folder of an object store that can be listed and read."""

    def __init__(self, folder: str) -> None:
        """Nothing is requested yet."""
        bucket, _, prefix = s3_uri(folder).removeprefix("s3://").partition("/")
        self._folder, self._prefix = folder, prefix.strip("/")
        self._store = _open_store(bucket, options_for(folder))

    def listing(self, folder: str = "") -> ObjectListing:
        """Return what is in the folder or a subfolder; empty if it does not exist."""
        with self._errors(folder):
            found = self._store.list_with_delimiter(self._path(folder))
        stamps: dict[str, Stamp | None] = {posixpath.basename(each): None for each in found["common_prefixes"]}
        return ObjectListing(stamps | {posixpath.basename(each["path"]): _stamp(each) for each in found["objects"]})

    def names(self, folder: str = "") -> list[str]:
        """Return the names in the folder or a subfolder; empty if it does not exist."""
        return self.listing(folder).names

    def read(self, name: str) -> bytes:
        """Return the content of one object."""
        with self._errors(name):
            return bytes(self._store.get(self._path(name)).bytes())

    def read_all(self, names: Iterable[str]) -> list[bytes | OSError]:
        """Return the contents of several objects, read in parallel; an error in the place of one that cannot be read."""

        def read(name: str) -> bytes | OSError:
            try:
                return self.read(name)
            except OSError as error:
                return error

        return in_parallel(read, names)

    def stamp(self, name: str) -> Stamp | None:
        """Return size and version of one object; None if it does not exist."""
        try:
            with self._errors(name):
                return _stamp(self._store.head(self._path(name)))
        except FileNotFoundError:
            return None

    def open(self, name: str) -> Any:
        """Return a file object from which pyarrow can read at any offset."""
        import obstore
        import pyarrow as pa

        with self._errors(name):
            found = self._store.get(self._path(name))
            size = found.meta["size"]
            if size <= _WHOLE:
                return pa.BufferReader(bytes(found.bytes()))
            return obstore.open_reader(self._store, self._path(name), size=size)

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        """Raise what goes wrong in the store as the errors of files."""
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(2, "it does not exist", name) from error
        except BaseError as error:
            place = posixpath.join(self._folder, name).rstrip("/")
            raise LakeUnreachable(path=place, problem=store_problem(error)) from error

    def _path(self, name: str) -> str:
        return posixpath.join(self._prefix, name).rstrip("/")


def _stamp(meta: Any) -> Stamp:
    return meta["size"], meta["e_tag"] or str(meta["last_modified"])


def store_problem(error: BaseException) -> str:
    """Return what a client of a store says in one line, with the code of the store's own answer, and without the dump behind it."""
    text = str(error).partition("Debug source:")[0]
    code = _CODE.search(text)
    said = " ".join(re.split(r"<\?xml|<Error", text)[0].split())
    return f"{said} {code[1]}" if code else said


def in_parallel(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Return the results of a function that makes a request each."""
    items = list(items)
    return [function(items[0])] if len(items) == 1 else list(_pool().map(function, items))


def ask_all(folder: str, *questions: Callable[[], Any]) -> list[Any]:
    """Return the answers to some questions: asked in parallel of an object store, where each mostly waits."""
    if not is_object_store(folder):
        return [question() for question in questions]
    ObjectFolder(folder)  # imports the client: imported by several threads at once, they would see half of it
    with ThreadPoolExecutor(len(questions)) as threads:
        return [asked.result() for asked in [threads.submit(question) for question in questions]]


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(PARALLEL, thread_name_prefix="object-store")


@lru_cache(maxsize=16)
def _open_store(bucket: str, options: StoreOptions) -> Any:
    """Return the store of a bucket: its tables share the connections."""
    from obstore.store import from_url

    retries: dict[str, Any] = {"max_retries": 6, "retry_timeout": timedelta(seconds=60)}
    return from_url(f"s3://{bucket}", retry_config=retries, **options.obstore())
