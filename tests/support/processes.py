"""Commands as users start them, and what an interpreter or a folder holds afterwards."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

ONCELAKE = str(Path(sys.executable).with_name("oncelake"))
HEAVY = {"pyspark", "py4j", "delta", "deltalake", "pyarrow", "pandas", "numpy", "rich"}


def loaded_by(code):
    """Return the top-level modules a fresh interpreter has after the code."""
    script = f"import json, sys\n{code}\nprint(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def all_files(folder):
    """Return every file below a folder with its modification time and a hash of its content."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return [(path, path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files]
