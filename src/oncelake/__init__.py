"""oncelake: exactly-once data pipelines on Spark and Delta Lake, and the proof of it.

Everything public is listed here and resolved on first use, so that commands which need no Spark do not pay for it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "Fingerprint": "oncelake.delta.fingerprint",
    "Interval": "oncelake.model.intervals",
    "OncelakeError": "oncelake.errors",
    "Outcome": "oncelake.model.work",
    "Plan": "oncelake.model.work",
    "Project": "oncelake.api",
    "Report": "oncelake.model.work",
    "Verdict": "oncelake.proving.verdict",
    "aggregate": "oncelake.patterns",
    "append": "oncelake.patterns",
    "changes": "oncelake.sources",
    "differences": "oncelake.delta.contents",
    "each_batch": "oncelake.streaming.foreach_batch",
    "files": "oncelake.sources",
    "fingerprint": "oncelake.delta.contents",
    "kafka": "oncelake.sources",
    "key": "oncelake.keyed.keys",
    "latest": "oncelake.api",
    "merge": "oncelake.patterns",
    "open": "oncelake.api",
    "overwrite": "oncelake.patterns",
    "pipeline": "oncelake.declare.pipelines",
    "prove": "oncelake.proving.proof",
    "prove_script": "oncelake.proving.proof",
    "replace_interval": "oncelake.patterns",
    "replace_partitions": "oncelake.patterns",
    "scd2": "oncelake.patterns",
    "table": "oncelake.sources",
    "write": "oncelake.running.write",
}

__all__ = [
    "Fingerprint",
    "Interval",
    "OncelakeError",
    "Outcome",
    "Plan",
    "Project",
    "Report",
    "Verdict",
    "__version__",
    "aggregate",
    "append",
    "changes",
    "differences",
    "each_batch",
    "files",
    "fingerprint",
    "kafka",
    "key",
    "latest",
    "merge",
    "open",
    "overwrite",
    "pipeline",
    "prove",
    "prove_script",
    "replace_interval",
    "replace_partitions",
    "scd2",
    "table",
    "write",
]

if TYPE_CHECKING:
    from oncelake.api import Project, latest, open  # noqa: A004  once.open
    from oncelake.declare.pipelines import pipeline
    from oncelake.delta.contents import differences, fingerprint
    from oncelake.delta.fingerprint import Fingerprint
    from oncelake.errors import OncelakeError
    from oncelake.keyed.keys import key
    from oncelake.model.intervals import Interval
    from oncelake.model.work import Outcome, Plan, Report
    from oncelake.patterns import aggregate, append, merge, overwrite, replace_interval, replace_partitions, scd2
    from oncelake.proving.proof import prove, prove_script
    from oncelake.proving.verdict import Verdict
    from oncelake.running.write import write
    from oncelake.sources import changes, files, kafka, table
    from oncelake.streaming.foreach_batch import each_batch


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'oncelake' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
