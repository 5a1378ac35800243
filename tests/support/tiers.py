"""How many tests of each file `make test` runs: a sample, chosen by the commit, of files that would take it over its minutes."""

from collections import defaultdict

from support.variants import sample

# Files that are not named are run as a whole. `tests/TIERS.md` says why; `make test-all` runs everything.
SAMPLES = {
    "proofs/arrivals_behaviours_test.py": 2,
    "proofs/behaviours_test.py": 10,
    "proofs/mutants/pipelines_test.py": 1,
    "proofs/proof_test.py": 1,
    "proofs/prove_command_test.py": 1,
    "proofs/streams_behaviours_test.py": 2,
    # `make demo` runs that example, without the kills.
    "processes/examples_test.py": 0,
    "processes/kills_test.py": 2,
    "processes/lost_jvm_test.py": 1,
    "processes/object_store_test.py": 2,
    "processes/plugin_test.py": 1,
    "processes/runners_test.py": 1,
    "processes/watch_test.py": 1,
    "spark/arrivals_test.py": 6,
    "spark/arrivals_redone_test.py": 2,
    "spark/arriving_schema_test.py": 1,
    "spark/bad_input_test.py": 6,
    "spark/catalog_test.py": 2,
    "spark/checkpoints_test.py": 2,
    "spark/commit_path_test.py": 2,
    "spark/dedup_test.py": 2,
    "spark/doctor_test.py": 1,
    "spark/duplicate_files_test.py": 1,
    "spark/each_batch_test.py": 2,
    "spark/fingerprint_test.py": 6,
    "spark/keyed_test.py": 5,
    "spark/large_files_test.py": 2,
    "spark/ledger_test.py": 1,
    "spark/patterns_test.py": 6,
    "spark/promise_cdc_test.py": 2,
    "spark/promise_changed_world_test.py": 3,
    "spark/promise_clocks_test.py": 1,
    "spark/promise_csv_test.py": 2,
    "spark/promise_declarations_test.py": 2,
    "spark/promise_inputs_test.py": 3,
    "spark/promise_rebuild_test.py": 1,
    "spark/promise_review_a_test.py": 1,
    "spark/promise_review_b_test.py": 2,
    "spark/promise_review_c_test.py": 1,
    "spark/promise_rowwise_test.py": 4,
    "spark/promise_without_lock_test.py": 2,
    "spark/ranges_test.py": 2,
    "spark/restate_files_test.py": 2,
    "spark/restate_test.py": 2,
    "spark/restore_test.py": 2,
    "spark/rowwise_test.py": 8,
    "spark/stream_quarantine_test.py": 1,
    "spark/stream_restart_test.py": 2,
    "spark/stream_sources_test.py": 2,
    "spark/stream_tables_test.py": 1,
    "spark/streams_test.py": 2,
    "spark/zones_test.py": 1,
}


def outside_sample(items):
    """Return the tests that are not in the sample. Those marked as long are in no sample."""
    by_file = defaultdict(list)
    for item in items:
        if item.get_closest_marker("long") is None:
            by_file[file_of(item.nodeid)].append(item)
    return [item for file, those in by_file.items() for item in _left_out(file, those)]


def _left_out(file, items):
    if file not in SAMPLES:
        return []
    chosen = sample([item.nodeid for item in items], SAMPLES[file], file)
    return [item for item in items if item.nodeid not in chosen]


def file_of(nodeid):
    """Return the file of a test, below `tests`."""
    return nodeid.partition("::")[0].removeprefix("tests/")
