# Chores, each a few lines. `make` by itself lists them.
PYTHON ?= python3
BIN := .venv/bin
TIERS := tests/spark tests/processes tests/proofs tests/model
# A Spark session keeps one core busy, and there are two.
PARALLEL := -n 2 --dist loadfile --no-loadscope-reorder
export PYTHONDONTWRITEBYTECODE := 1

help:  ## list what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: .venv/ready  ## the virtual environment and the jars of Delta, S3 and Kafka, once

.venv/ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	$(BIN)/python -m oncelake.spark.prepare --s3 --kafka
	touch $@

demo: setup  ## the retry that doubled the rows, and the same retry that does not
	$(BIN)/python examples/flights/demo.py

check: setup  ## lint, types, layers
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --quiet --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

quick: check  ## check, and the tests that need no JVM (two minutes)
	$(BIN)/pytest -q -n 2 tests/unit

test: quick  ## everything that must hold: real Spark, real kills, a sample of the rest (15 minutes)
	$(BIN)/pytest --sample $(PARALLEL) $(TIERS)

test-all: quick  ## the longer shapes too (hours)
	$(BIN)/pytest $(PARALLEL) -m '' $(TIERS)

prove: setup  ## every pattern killed at every file call, with real kills and faults; every mutant (hours)
	$(BIN)/python tests/proofs/full.py
	$(BIN)/pytest -m '' tests/proofs
	ONCELAKE_FUZZ=20000 $(BIN)/pytest -q tests/unit/arrivals/fuzz_test.py
	ONCELAKE_STREAM_KILLS=100 $(BIN)/pytest -q -m '' tests/processes/examples_payments_test.py -k often
	ONCELAKE_STREAM_KILLS=100 $(BIN)/pytest -q -m '' tests/processes/stream_kills_test.py -k random

bench: setup  ## the figures in bench/results, measured again
	$(BIN)/python -m bench

log-store:  ## the jar of the log store for S3, from java/ (needs javac 17)
	$(BIN)/python java/build.py

lock:  ## resolve requirements.lock anew (needs uv)
	uv pip compile pyproject.toml --quiet --all-extras --generate-hashes --no-emit-index-url --no-emit-find-links \
	  --no-header --no-annotate --python-version 3.11 -o requirements.lock

clean:  ## remove what was made here
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache demo-lake

.PHONY: help setup demo check quick test test-all prove bench log-store lock clean
