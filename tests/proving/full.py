"""`make prove`: every pattern, every distinct state, real kills and faults. The totals are kept in bench/results/proof.json."""

import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from lakes import DAYS, WRITES, orders_project  # noqa: E402
from oncelake.proving.proof import Prover  # noqa: E402

RESULT = HERE.parents[1] / "bench" / "results" / "proof.json"
EFFORT = {"kills": 6, "faults": 30, "recoveries": 10, "zombies": 2, "threads": (2, 4, 8)}


def main(names):
    begun, documents, tried, states = time.monotonic(), {}, Counter(), 0
    with Prover() as prover, tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(names or WRITES):
            root = orders_project(Path(folder) / str(number), WRITES[name])
            verdict = prover.prove(root, "orders", told=_told(name), start=DAYS[0], end=DAYS[2], **EFFORT)
            documents[name] = verdict.document()
            states += verdict.states
            tried += {scenario: count.tried for scenario, count in verdict.counts.items()}
            told = verdict.violation.story if verdict.violation else f"{verdict.states} states"
            print(f"\r{name}: {verdict.verdict}, {told}, {verdict.seconds:.0f} s", flush=True)
    violated = [name for name, document in documents.items() if document["verdict"] != "proven"]
    totals = {"patterns": len(documents), "states": states, "cases": sum(tried.values()), **tried}
    totals |= {"violated": violated, "seconds": round(time.monotonic() - begun)}
    print(json.dumps(totals, indent=2))
    if not names:
        RESULT.write_text(json.dumps({"totals": totals, "patterns": documents}, indent=2, ensure_ascii=False) + "\n")
    return 3 if violated else 0


def _told(name):
    def told(case, index, total):
        if sys.stderr.isatty():
            print(f"\r\033[K{name}: {index}/{total} {case.id[:90]}", end="", file=sys.stderr, flush=True)

    return told


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
