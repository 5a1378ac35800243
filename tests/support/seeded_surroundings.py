"""Bugs seeded into the product that show only when its surroundings change: upstream, locks, the JVM, the grid."""

from support.seeded import APPEND, REPLACE, TABLE, Mutant

LATEST = 'once.merge("silver.orders", keys="region", latest_by="ordered_at")'
SURROUNDINGS = {
    "late rows looked for by the slice of the writer": Mutant(
        ("other_time",),
        reads=TABLE,
        writes=REPLACE,
        broken="""
broken("oncelake.delta.time_ranges", "TimeColumn.cut", lambda real, self, facts: "slice" in facts)
""",
    ),
    "a table whose statistics say nothing, taken for unchanged": Mutant(
        ("other_time",),
        reads=TABLE,
        writes=REPLACE,
        broken="""
broken("oncelake.delta.time_ranges", "TimeColumn.held", lambda real, self, file: [])
""",
    ),
    "a clause dropped from a merge because of an earlier read": Mutant(
        ("no_lock",),
        writes=LATEST,
        broken="""
# A method in the place of a property: it is always true.
broken("oncelake.keyed.merge", "KeyedMerge.exclusive", lambda real, self: True)
""",
    ),
    "a lost JVM that stays lost": Mutant(
        ("lost_jvm",),
        broken="""
broken("oncelake.spark.session", "discard_session", lambda real, session: None)
""",
    ),
    "an interval that is done in part, taken for done": Mutant(
        ("grid_changed",),
        reads=TABLE,
        writes=REPLACE,
        broken="""
from oncelake.planning import decisions
def done(real, parts, pattern):
    ready = [part for part in parts if part.action == "skip"]
    return ready[0]._replace(start=parts[0].start, end=parts[-1].end) if ready else real(parts, pattern)
broken("oncelake.planning.decisions", "_merge", done)
""",
    ),
    "works of another grid that do not count": Mutant(
        ("grid_changed",),
        reads=TABLE,
        writes=APPEND,
        broken="""
from datetime import datetime
def on_grid(real, self, log, pipeline, start, grid):
    lines = lambda part: map(datetime.fromisoformat, (part.start, part.end))
    return [part for part in real(self, log, pipeline, start, grid) if all(map(grid.is_boundary, lines(part)))]
broken("oncelake.model.pattern", "PatternDefaults.done", on_grid)
broken("oncelake.running.commit_state", "_coverage", lambda real, work, log: [])
""",
    ),
}
