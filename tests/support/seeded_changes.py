"""Bugs seeded into the product that show only when the world changes between two runs."""

from support.seeded import APPEND, REPLACE, Mutant

MERGE = 'once.merge("silver.orders", keys="region", latest_by="ordered_at", delete_when="id = {id}")'
CHANGED_WORLD = {
    "a rebuild that keeps rows of the old table": Mutant(
        ("corrected",),
        writes='once.merge("silver.orders", keys="id", latest_by="ordered_at")',
        broken="""
def kept(real, frame, path, stamp, new_schema=False):
    if new_schema:
        old = frame.sparkSession.read.format("delta").load(path)
        frame = frame.unionByName(old.join(frame, "id", "left_anti"))
    real(frame, path, stamp, new_schema=new_schema)
broken("oncelake.delta.writes", "overwrite", kept)
""",
    ),
    "a rebuild that forgets the tombstones": Mutant(
        ("corrected",),
        writes=MERGE.format(id=118),
        broken="""
class Forgotten:
    def rows(self):
        return None
broken("oncelake.operations.rebuild", "PreparedRows", lambda real, *args: Forgotten())
""",
    ),
    "tombstones of a work that a restore undid": Mutant(
        ("corrected",),
        writes=MERGE.format(id=119),
        broken="""
broken("oncelake.delta.prepared", "PreparedRows._undone", lambda real, self, version: False)
""",
    ),
    "a restore whose undone works count as done": Mutant(
        ("restored",),
        broken="""
broken("oncelake.operations.restore", "_undone_intervals", lambda real, *args: ())
""",
    ),
    "a restore that leaves requests open": Mutant(
        ("restored",),
        broken="""
broken("oncelake.operations.restore", "_closed_intervals", lambda real, *args: ())
""",
    ),
    "inputs lent to a target that was added later": Mutant(
        ("second_target",),
        writes=APPEND,
        broken="""
broken("oncelake.running.attempt", "_siblings", lambda real, work, facts: True)
""",
    ),
    "a redo from the old inputs of the other target": Mutant(
        ("second_target",),
        writes=REPLACE,
        broken="""
from dataclasses import replace
def lent(real, work, facts):
    return real(replace(work, generation=facts.get("generation")), facts)
broken("oncelake.running.attempt", "_siblings", lent)
""",
    ),
    "a renamed append taken for another": Mutant(
        ("renamed",),
        broken="""
broken("oncelake.planning.writers", "_refuse_renamed", lambda real, *args: None)
""",
    ),
    "former names that do not count": Mutant(
        ("renamed",),
        broken="""
broken("oncelake.delta.log", "former_app_ids", lambda real, *args: [])
""",
    ),
}
