"""Turn the settings of an object store into the options of Spark, delta-rs, pyarrow and obstore. Only this module does.

What `storage:` of a profile leaves open is taken from the environment (`AWS_…`), for all four alike. Credentials are given to
each of them apart: they are in no text, no Spark setting and no URI.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from oncelake.declare.store import StoreSettings

# The names of an S3 path: all of them are the same store, and Spark knows it as s3a.
S3_SCHEMES = ("s3a", "s3", "s3n")
_S3 = re.compile(r"^s3[an]?://")
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_TRUE = ("true", "1", "yes", "on")


@dataclass(frozen=True)
class StoreOptions:
    """How an object store is reached, settled: one object for all libraries. Credentials are not part of its text."""

    endpoint: str | None = None
    region: str | None = None
    path_style: bool = False
    allow_http: bool = False
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)

    def spark(self) -> dict[str, str]:
        """Return Spark's settings, without credentials: settings are on Spark's command line."""
        s3a = {"path.style.access": str(self.path_style).lower()}
        if self.endpoint:
            s3a |= {"endpoint": self.endpoint, "connection.ssl.enabled": str(not self._is_http).lower()}
        if self.region:
            s3a["endpoint.region"] = self.region
        # Hadoop knows S3 by the name s3a only.
        same = {f"spark.hadoop.fs.{name}.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem" for name in S3_SCHEMES}
        return {**same, **{f"spark.hadoop.fs.s3a.{key}": value for key, value in s3a.items()}}

    def spark_credentials(self) -> dict[str, str]:
        """Return the credentials as Spark settings, for a JVM that runs already and has no command line to show."""
        names = {"access.key": self.access_key, "secret.key": self.secret_key, "session.token": self.session_token}
        return {f"spark.hadoop.fs.s3a.{name}": value for name, value in names.items() if value}

    def environment(self) -> dict[str, str]:
        """Return the credentials as environment variables, for a JVM to start with; Spark hands them to its executors."""
        names = {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_SESSION_TOKEN": self.session_token,
        }
        return {name: value for name, value in names.items() if value}

    def delta_rs(self) -> dict[str, str]:
        """Return the `storage_options` of delta-rs."""
        options = {"AWS_VIRTUAL_HOSTED_STYLE_REQUEST": str(not self.path_style).lower(), **self.environment()}
        options |= {"AWS_ALLOW_HTTP": "true"} if self._is_http or self.allow_http else {}
        options |= {"AWS_ENDPOINT_URL": self.endpoint} if self.endpoint else {}
        return options | ({"AWS_REGION": self.region} if self.region else {})

    def obstore(self) -> dict[str, Any]:
        """Return the arguments of obstore's `from_url`, besides the address."""
        config = {
            "access_key_id": self.access_key,
            "secret_access_key": self.secret_key,
            "session_token": self.session_token,
            "endpoint": self.endpoint,
            "region": self.region,
            "virtual_hosted_style_request": not self.path_style,
        }
        given = {key: value for key, value in config.items() if value is not None}
        return {"config": given, "client_options": {"allow_http": self._is_http or self.allow_http}}

    def pyarrow(self) -> dict[str, Any]:
        """Return the arguments of pyarrow's S3FileSystem."""
        options: dict[str, Any] = {"force_virtual_addressing": not self.path_style}
        if self.endpoint:
            scheme, _, address = self.endpoint.partition("://")
            options |= {"scheme": scheme, "endpoint_override": address.rstrip("/")}
        names = {"access_key": self.access_key, "secret_key": self.secret_key, "session_token": self.session_token}
        options |= {name: value for name, value in names.items() if value}
        return options | ({"region": self.region} if self.region else {})

    @property
    def _is_http(self) -> bool:
        return self.endpoint is not None and self.endpoint.startswith("http://")


# The settings of projects that were loaded in this process, by the beginning of the paths that they are for.
_settings: dict[str, StoreSettings] = {}
ANYWHERE = "s3:/"


def use_settings(lake: str, settings: StoreSettings) -> None:
    """Reach a lake by its project's settings from now on, and whatever else the project names in S3."""
    if is_s3(lake):
        _settings[s3_uri(lake).rstrip("/")] = settings
    if settings != StoreSettings():
        _settings[ANYWHERE] = settings


def reaches_s3(lake: str) -> bool:
    """Return whether a project reaches S3: its lake is there, or it says how files are reached there."""
    return is_s3(lake) or ANYWHERE in _settings


def options_for(path: str) -> StoreOptions:
    """Return the options for a path of an object store: the project's settings for it, then the environment."""
    place = s3_uri(path)
    known = [start for start in _settings if place == start or place.startswith(f"{start}/")]
    return settle(_settings[max(known, key=len)] if known else StoreSettings(), os.environ)


def settle(settings: StoreSettings, environ: Mapping[str, str]) -> StoreOptions:
    """Fill in from the environment what the settings leave open."""
    endpoint = settings.endpoint or _first(environ, _ENDPOINTS)
    path_style, allow_http = settings.path_style, settings.allow_http
    if path_style is None:
        virtual = environ.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST")
        # Servers of one's own rarely have a name for each bucket.
        path_style = endpoint is not None if virtual is None else virtual.lower() not in _TRUE
    keys = (settings.access_key, settings.secret_key, settings.session_token)
    if settings.access_key is None:
        names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
        keys = (environ.get(names[0]), environ.get(names[1]), environ.get(names[2]))
    return StoreOptions(
        endpoint,
        settings.region or _first(environ, _REGIONS) or ("us-east-1" if endpoint else None),
        path_style,
        environ.get("AWS_ALLOW_HTTP", "").lower() in _TRUE if allow_http is None else allow_http,
        *(key or None for key in keys),
    )


def is_s3(path: str) -> bool:
    """Return whether a path is in S3."""
    return _S3.match(path) is not None


def s3_uri(path: str) -> str:
    """Return a path with the name of S3 that libraries other than Spark know."""
    return _S3.sub("s3://", path)


def arrow_file_system(path: str) -> tuple[Any, str]:
    """Return pyarrow's file system for a URI, and the path in it."""
    from pyarrow import fs

    if not is_s3(path):
        found: tuple[Any, str] = fs.FileSystem.from_uri(path)
        return found
    bucket, _, key = s3_uri(path).removeprefix("s3://").partition("/")
    return _s3_file_system(options_for(path), bucket), f"{bucket}/{key}".rstrip("/")


def open_input(path: str, options: StoreOptions | None) -> Any:
    """Open a file for reading; on an executor, which knows no settings, an object store is reached by the given options."""
    if "://" not in path or path.startswith("file://"):
        return open(path.removeprefix("file://"), "rb")
    if options is None or not is_s3(path):
        store, name = arrow_file_system(path)
        return store.open_input_file(name)
    bucket, _, key = s3_uri(path).removeprefix("s3://").partition("/")
    return _s3_file_system(options, bucket).open_input_file(f"{bucket}/{key}")


def object_store(path: str, **options: Any) -> Any:
    """Return obstore's store for a URI; None if obstore is not installed."""
    try:
        from obstore.store import from_url
    except ImportError:
        return None
    if not is_s3(path):
        return from_url(path, **({} if path.startswith("file://") else options))
    return from_url(s3_uri(path), **options_for(path).obstore(), **options)


def delta_rs_options(path: str) -> dict[str, str] | None:
    """Return the `storage_options` of delta-rs for a path."""
    return options_for(path).delta_rs() if is_s3(path) else None


@lru_cache(maxsize=16)
def _s3_file_system(options: StoreOptions, bucket: str) -> Any:
    from pyarrow import fs

    arguments = options.pyarrow()
    if "region" not in arguments:
        arguments["region"] = fs.resolve_s3_region(bucket)
    return fs.S3FileSystem(**arguments)


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((environ[name] for name in names if environ.get(name)), None)
