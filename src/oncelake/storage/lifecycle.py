"""Rules of a bucket that remove objects after some time, asked where that is possible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from oncelake.storage.options import StoreOptions, options_for, s3_uri

_TIMEOUT = 5


def expiring_rule(path: str) -> str | None:
    """Return the rule that would remove what is written below a path of S3, in words; None if there is none, or nobody tells.

    It is asked with botocore, if that is installed: no other library here asks for it.
    """
    bucket, _, key = s3_uri(path).removeprefix("s3://").partition("/")
    return find_expiring(_rules(bucket, options_for(path)), f"{key.strip('/')}/")


def find_expiring(rules: Iterable[Mapping[str, Any]], prefix: str) -> str | None:
    """Return the first of some rules that removes objects below a prefix, in words; None if there is none."""
    for rule in rules:
        after = rule.get("Expiration") or {}
        if rule.get("Status") != "Enabled" or not ("Days" in after or "Date" in after):
            continue
        filters = rule.get("Filter") or {}
        conditions = filters.get("And") or filters
        if conditions.keys() & {"Tag", "Tags", "ObjectSizeGreaterThan"}:
            continue  # the files of a checkpoint have no tags, and are small
        start = str(conditions.get("Prefix", rule.get("Prefix") or ""))
        if prefix.startswith(start) or start.startswith(prefix):
            when = f"after {after['Days']} days" if "Days" in after else f"on {after['Date']}"
            return f"{rule.get('ID') or 'a rule'}: {start or 'everything'} {when}"
    return None


@lru_cache(maxsize=16)
def _rules(bucket: str, options: StoreOptions) -> tuple[Mapping[str, Any], ...]:
    try:
        from botocore.config import Config
        from botocore.session import Session
    except ImportError:
        return ()
    style = {"addressing_style": "path" if options.path_style else "virtual"}
    retries = {"max_attempts": 1}
    config = Config(s3=style, connect_timeout=_TIMEOUT, read_timeout=_TIMEOUT, retries=retries)
    keys = {
        "aws_access_key_id": options.access_key,
        "aws_secret_access_key": options.secret_key,
        "aws_session_token": options.session_token,
    }
    place = {"endpoint_url": options.endpoint, "region_name": options.region}
    try:
        client = Session().create_client("s3", config=config, **place, **keys)
        return tuple(client.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"])
    except Exception:  # noqa: BLE001  no rules, no permission to ask, or a store that has none: nothing is known
        return ()
