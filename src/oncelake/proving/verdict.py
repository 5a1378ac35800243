"""The verdict of a proof: proven, or the first violation as a story; also the certificate and the JUnit report."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any
from xml.etree import ElementTree as ET

PROVEN, VIOLATED = "proven", "violated"
# Each case of these takes seconds and shows little more than the images of all calls: a sample confirms those.
SAMPLES = ("recovery", "fault", "zombie", "kill", "lost_jvm")
_PACKAGES = ("oncelake", "pyspark", "delta-spark", "deltalake")


@dataclass(frozen=True)
class Violation:
    """A case after which a table differs from that of a clean run."""

    case: str
    scenario: str
    story: str
    table: str | None = None
    surplus: int | None = None
    missing: int | None = None
    examples: Sequence[Mapping[str, Any]] = ()

    def document(self) -> dict[str, Any]:
        """Return the violation as `--json` prints it."""
        return {**vars(self), "examples": [dict(example) for example in self.examples]}


@dataclass(frozen=True)
class Count:
    """How many cases of a scenario there are, and how many were tried."""

    tried: int
    there: int


@dataclass(frozen=True)
class Verdict:
    """The outcome of a proof."""

    job: str
    scope: str
    level: str
    seed: int
    points: int
    states: int
    confirmed: str
    counts: Mapping[str, Count]
    fingerprints: Mapping[str, Any]
    seconds: float
    reproduce: str
    violation: Violation | None = None
    excluded: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # Scenarios that say nothing of this job, and why.
    not_tried: Mapping[str, str] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """Return `proven` or `violated`."""
        return VIOLATED if self.violation else PROVEN

    @property
    def exit_code(self) -> int:
        """Return the exit code of the verdict."""
        return 3 if self.violation else 0

    @property
    def sampled(self) -> bool:
        """Return whether a budget skipped states, orders or races. Real kills and faults are always a sample."""
        whole = (count for name, count in self.counts.items() if name not in SAMPLES)
        return any(count.tried < count.there for count in whole)

    def document(self) -> dict[str, Any]:
        """Return the document that `prove --json` prints, which is also the certificate."""
        return {
            "verdict": self.verdict,
            "job": self.job,
            "scope": self.scope,
            "level": self.level,
            "seed": self.seed,
            "states": self.states,
            "points": self.points,
            "kills": self._tried("kill"),
            "orders": self._tried("order"),
            "races": self._tried("race"),
            "images_confirmed": self.confirmed,
            "cases": {name: vars(count) for name, count in self.counts.items()},
            "not_tried": dict(self.not_tried),
            "sampled": self.sampled,
            "fingerprints": dict(self.fingerprints),
            "excluded": {table: list(columns) for table, columns in self.excluded.items()},
            "violation": self.violation.document() if self.violation else None,
            "reproduce": self.reproduce,
            "seconds": round(self.seconds, 1),
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "versions": {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
        }

    def _tried(self, scenario: str) -> int:
        return self.counts[scenario].tried if scenario in self.counts else 0

    def junit(self) -> bytes:
        """Return a JUnit report with one test case per scenario."""
        suite = ET.Element("testsuite", name=f"oncelake prove {self.job}", time=f"{self.seconds:.1f}")
        for name, count in self.counts.items():
            case = ET.SubElement(suite, "testcase", classname=f"oncelake.prove.{self.job}", name=name)
            ET.SubElement(case, "system-out").text = f"{count.tried} of {count.there} tried, seed {self.seed}"
            if self.violation and self.violation.scenario == name:
                failure = ET.SubElement(case, "failure", message=self.violation.story, type=VIOLATED)
                failure.text = f"{self.violation.story}\nreproduce: {self.reproduce}"
        suite.set("tests", str(len(self.counts)))
        suite.set("failures", str(int(self.violation is not None)))
        return bytes(ET.tostring(suite, encoding="utf-8", xml_declaration=True))
