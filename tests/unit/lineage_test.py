"""What `status` knows of works without reading more than the newest commits and a rebuild."""

from oncelake.delta.log import NEWEST, read_log
from oncelake.model.intervals import Grid
from oncelake.model.markers import marker, restore_marker
from support.hand_written_logs import txn, write_commit

GRID = Grid("day")
DAYS = list(GRID.cells(GRID.parse("2024-01-01"), GRID.parse("2024-12-31")))


def work(number, generation=1):
    return marker("p", "t", DAYS[number], generation)


def write_work(table, version, number, generation=1):
    write_commit(table, version, txn(work(number, generation)), facts={"pipeline": "p", "made_in": version})


def rebuild(table, version, *generations):
    facts = {work(number).app_id: {"code": "c", "generation": each} for number, each in enumerate(generations)}
    write_commit(table, version, txn(restore_marker("t", version, -1)), facts={"rebuilt": facts})


def recent(table, *numbers):
    log = read_log("t", str(table))
    facts = log.recent_facts(work(number).app_id for number in numbers)
    named = {number: work(number).app_id for number in numbers}
    return {number: facts[name] for number, name in named.items() if name in facts}


def test_a_short_log_knows_every_work_and_which_commits_are_gone(tmp_path):
    for version in range(3):
        write_work(tmp_path, version, version)
    rebuild(tmp_path, 3, 1, 1)
    write_work(tmp_path, 4, 1, generation=2)
    assert recent(tmp_path, 0, 1, 2) == {
        0: {"code": "c", "generation": 1},
        1: {"pipeline": "p", "made_in": 4},
        2: None,
    }


def test_of_a_long_log_works_of_older_commits_are_left_out_and_rebuilt_ones_are_known(tmp_path):
    for version in range(3):
        write_work(tmp_path, version, version)
    rebuild(tmp_path, 3, 1, 1)
    write_work(tmp_path, 4, 1, generation=2)
    for number in range(5, 5 + NEWEST):
        write_work(tmp_path, number, number)
    newest = 4 + NEWEST
    # The second was redone after the rebuild, in a commit that is not looked at; of the third nothing is known.
    assert recent(tmp_path, 0, 1, 2, newest) == {
        0: {"code": "c", "generation": 1},
        newest: {"pipeline": "p", "made_in": newest},
    }
