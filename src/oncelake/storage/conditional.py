"""Whether an object store creates an object only if there is none (a conditional put): tried out, because no store says so.

Where it does, Delta's log can be written by several drivers. What was found is kept in the lake, for `status`.
"""

from __future__ import annotations

import json
import uuid
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from oncelake.storage.objects import storage
from oncelake.storage.options import object_store
from oncelake.storage.paths import INTERNAL

_FINDING = f"{INTERNAL}/store.json"
# Longer than for other requests: what is found here holds for a whole session.
_RETRIES = {"max_retries": 6, "retry_timeout": timedelta(seconds=60)}
_found: dict[str, Finding] = {}


@dataclass(frozen=True)
class Finding:
    """Whether a store has conditional puts, and why it is taken not to have them; None if that was never tried."""

    conditional: bool | None
    problem: str = ""


def try_conditional_puts(lake: str) -> Finding:
    """Create one object twice, once per process and lake: the second attempt must be refused."""
    if lake not in _found:
        finding = _try(lake)
        if finding.conditional is None:
            return finding
        _found[lake] = finding
    return _found[lake]


def has_conditional_puts(lake: str) -> bool:
    """Return whether a store has conditional puts, as far as this process has tried; it is taken to have them."""
    return lake not in _found or _found[lake].conditional is not False


def last_finding(lake: str) -> Finding:
    """Return what the last session found, without trying: commands that only look write nothing."""
    if lake in _found:
        return _found[lake]
    try:
        found = json.loads(storage(lake).read(_FINDING))
        return Finding(bool(found["conditional_puts"]), str(found["problem"]))
    except FileNotFoundError:
        return Finding(conditional=None, problem="not tried before the first run")
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Finding(conditional=None, problem=f"{_FINDING} cannot be read ({type(error).__name__})")


def _try(lake: str) -> Finding:
    store = object_store(lake, retry_config=_RETRIES)
    if store is None:
        return Finding(conditional=False, problem='obstore is not installed (pip install "oncelake[s3]")')
    from obstore.exceptions import AlreadyExistsError, BaseError, NotSupportedError

    probe = f"{INTERNAL}/probes/{uuid.uuid4().hex}"
    finding = Finding(
        conditional=False, problem="it replaced an object that was to be created"
    )  # unless the second is refused
    try:
        for _ in range(2):
            store.put(probe, b"", mode="create")
    except AlreadyExistsError:
        finding = Finding(conditional=True)
    except (NotSupportedError, NotImplementedError):
        finding = Finding(conditional=False, problem="it does not know conditional puts")
    except (BaseError, OSError) as error:
        if "501" not in str(error) and "NotImplemented" not in str(error):
            return Finding(conditional=None, problem=f"it did not answer ({type(error).__name__})")
        finding = Finding(conditional=False, problem="it refuses conditional puts (501)")
    with suppress(Exception):  # an object of a few bytes, and a finding for people
        store.delete(probe)
    with suppress(Exception):
        at = datetime.now(UTC).isoformat(timespec="seconds")
        body = {"conditional_puts": finding.conditional, "problem": finding.problem, "at": at}
        store.put(_FINDING, json.dumps(body).encode())
    return finding
