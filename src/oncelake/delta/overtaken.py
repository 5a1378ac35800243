"""Works that were overtaken: another commit came between the read that decided their rows and their own commit.

Without an exclusive lock that can happen to `scd2`, and to `merge` with deletes: they decide from a version of the table and
its tombstones what their MERGE changes. Such a commit carries that version (`read`). If the commit is not the version after
it, the work is applied once more, in a commit of its own, until none came in between. The next run of any process may do that: each
commit of a work names the version of the log that its writer knew (`as_of`), and the works that were overtaken by then.
So a few of the newest commits tell all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from oncelake.delta.commit_file import CommitFile
from oncelake.model.markers import applied_work


def find_overtaken(entries: Iterable[CommitFile], present: Callable[[str], str] = str) -> dict[str, int]:
    """Return the works that must be applied once more, each with the version of its newest commit that was overtaken.

    The commits come newest first, without those that a restore undid, and only those that are needed are read. `present`
    returns an app id under the present name of its pipeline.
    """
    found: dict[str, int] = {}
    reapplied: dict[str, int] = {}
    earlier: Mapping[str, int] = {}
    as_of: int | None = None
    for entry in entries:
        if as_of is not None and entry.version <= as_of:
            break
        for name, number in entry.markers.items():
            work = present(applied_work(name))
            if _is_overtaken(entry):
                found.setdefault(work, entry.version)
            elif applied_work(name) != name:
                reapplied[work] = max(number, reapplied.get(work, -1))
        if as_of is None and "attempt" in entry.facts:
            # Without `as_of` it is from before there was such a thing, or a rebuild: nothing before it counts.
            as_of, earlier = entry.facts.get("as_of", entry.version), entry.facts.get("overtaken", {})
    known = {**{present(work): version for work, version in earlier.items()}, **found}
    return {work: version for work, version in known.items() if version > reapplied.get(work, -1)}


def _is_overtaken(entry: CommitFile) -> bool:
    read = entry.facts.get("read")
    return read is not None and entry.version != read + 1
