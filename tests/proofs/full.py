"""`make prove`: every pattern, every distinct state, real kills and faults. The totals are kept in bench/results/proof.json.

With names of patterns only those are proven, and put in the place of what the file has of them.
"""

import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from oncelake.proving.proof import Prover  # noqa: E402
from support.kafka import started_kafka  # noqa: E402
from support.lakes import DAYS, orders_project, table_project  # noqa: E402
from support.streams import kafka_source, orders, write_project  # noqa: E402
from support.variants import VARIANTS  # noqa: E402

RESULT = ROOT / "bench" / "results" / "proof.json"
EFFORT = {"kills": 6, "faults": 30, "recoveries": 10, "zombies": 2, "lost_jvms": 6, "threads": (2, 4, 8)}
OF_TABLES = ("other_time", "grid_changed")
# A stream of three batches, by the name of its shape.
STREAMS = {f"stream: {shape}": shape for shape in ("three", "state", "scd2")}


def main(names):
    begun, documents = time.monotonic(), _known() if names else {}
    with Prover() as prover, tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(names or [*VARIANTS, *STREAMS]):
            if name in STREAMS:
                documents[name] = _prove_stream(prover, Path(folder) / str(number), name)
                _keep(documents)
                continue
            effort = {"on_case": _told(name), "start": DAYS[0], "end": DAYS[2], **EFFORT}
            verdict = prover.prove(orders_project(Path(folder) / str(number), name), "orders", **effort)
            root = table_project(Path(folder) / f"{number}, from a table", name)
            by_table = prover.prove(root, "orders", **effort, scenarios=OF_TABLES)
            documents[name] = document = _joined(verdict.document(), by_table.document())
            told = document["violation"]["story"] if document["violation"] else f"{verdict.states} states"
            print(f"\r{name}: {document['verdict']}, {told}, {document['seconds']:.0f} s", flush=True)
            _keep(documents)
    totals = _totals(documents)
    print(json.dumps(totals, indent=2), f"{time.monotonic() - begun:.0f} s")
    return 3 if totals["violated"] else 0


def _prove_stream(prover, root, name):
    """Prove a stream of a topic on every state."""
    with started_kafka(root / "kafka") as kafka:
        topic = kafka.new_topic()
        kafka.produce(topic, *orders(*range(6)))
        write_project(root / "project", kafka_source(kafka, topic), STREAMS[name])
        document = prover.prove(root / "project", "orders", on_case=_told(name), **EFFORT).document()
    told = document["violation"]["story"] if document["violation"] else f"{document['states']} states"
    print(f"\r{name}: {document['verdict']}, {told}, {document['seconds']:.0f} s", flush=True)
    return document


def _joined(document, other):
    """The proof of a pattern that reads files, with the cases that only a pattern that reads a table has."""
    found = document if document["violation"] else other
    return {
        **document,
        "cases": {**document["cases"], **other["cases"]},
        "seconds": document["seconds"] + other["seconds"],
        "verdict": found["verdict"],
        "violation": found["violation"],
    }


def _keep(documents):
    """Write down what is proven so far: all of it takes hours."""
    whole = {"totals": _totals(documents), "patterns": documents}
    RESULT.write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n")


def _known():
    """The patterns proven before: those named now are proven again, the others stay as they are."""
    found = json.loads(RESULT.read_text())["patterns"] if RESULT.exists() else {}
    return {name: document for name, document in found.items() if name in VARIANTS or name in STREAMS}


def _totals(documents):
    tried = Counter()
    for document in documents.values():
        tried += {scenario: count["tried"] for scenario, count in document["cases"].items()}
    states = sum(document["states"] for document in documents.values())
    violated = [name for name, document in documents.items() if document["verdict"] != "proven"]
    seconds = round(sum(document["seconds"] for document in documents.values()))
    return {
        "patterns": len(documents),
        "states": states,
        "cases": sum(tried.values()),
        **tried,
        "violated": violated,
        "seconds": seconds,
    }


def _told(name):
    def told(case, index, total):
        if sys.stderr.isatty():
            print(f"\r\033[K{name}: {index}/{total} {case.id[:90]}", end="", file=sys.stderr, flush=True)

    return told


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
