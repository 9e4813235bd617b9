# One entry for commands; `make help` lists them. Each target sets up what it needs.

PYTHON ?= python3
UV_VERSION := 0.13.9
JOBS ?= 4
bin := .venv/bin
uv := $(bin)/uv
pure := tests/handover tests/matching tests/waypost tests/proxy $(addprefix tests/federation/test_, \
	checkpoint_table.py dispatching_tree.py endpoints.py filter_exchange.py forwarding_filter.py history.py journal_segments.py \
	link_endpoints.py link_receiver.py link_sender.py requested_filters.py site_state.py snapshot_chunks.py \
	tree_change.py tree_keeper.py) tests/node/test_append_admission.py tests/node/test_forgotten_site.py \
	tests/node/test_lease_keeper.py tests/node/test_watchdog.py \
	tests/node/gateway/test_propagate_messages.py tests/node/gateway/test_propagation.py tests/wheel/test_layout.py \
	tests/test_machines.py tests/test_import_circles.py tests/test_names.py tests/test_constructors.py tests/test_docs.py
demo_flags := $(if $(REAL),--real) $(if $(SEED),--seed $(SEED)) $(if $(ALL),--all)

# Without byte code every process compiles all it imports again: a proxy takes twice as long to start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test wheel faults quick coverage check parts sim bench pictures lock
.DEFAULT_GOAL := help

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

setup: .venv/.ready ## the virtual environment, exactly as locked

.venv/.ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(bin)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	$(uv) pip sync --quiet --python $(bin)/python --require-hashes requirements.lock
	$(uv) pip install --quiet --python $(bin)/python --no-deps -e .
	@touch $@

demo: setup $(if $(REAL),parts) ## the demonstration; REAL=1 on Kafka and etcd, SEED=7, ALL=1
	$(bin)/waypost demo $(demo_flags)

quick: check ## style, types, and the tests of the pure rooms: Python alone, a minute
	$(bin)/pytest -q -n 2 $(pure)

coverage: setup ## the tests of the pure rooms, and the lines and branches that they reach, by file
	$(bin)/python -m slipcover -m pytest -q -n 2 $(pure)

test: check parts coverage ## everything that must hold, but the long faults: check, coverage, then all other tests side by side
	$(bin)/pytest -q -n $(JOBS) $(addprefix --ignore ,$(pure) tests/faults) --ignore-glob 'tests/wheel/test_installed*'

wheel: setup parts ## the installed wheel: it offers one name, works, audits, and passes the tests of the pure rooms
	WAYPOST_WHEEL_TESTS="tests/handover tests/matching tests/waypost tests/proxy" $(bin)/pytest -q tests/wheel

faults: setup parts ## real parts are killed, paused, starved, cut and damaged under load: two tests at a time, and then some alone
	$(bin)/pytest -n 2 -m "not alone" tests/faults
	$(bin)/pytest -m alone tests/faults

check: setup ## style, types and the layer picture
	$(bin)/ruff check
	$(bin)/ruff format --check
	$(bin)/mypy
	$(bin)/lint-imports --no-logo

parts: setup ## the real servers: Kafka, etcd, toxiproxy, Spark's Kafka connector (needs Java, Maven, Go)
	@$(bin)/python -m chaos.servers.parts

sim: setup ## 20,000 schedules that nobody has played before, on all cores; or SEEDS=0..20000
	$(bin)/waypost sim $(if $(SEEDS),--seeds $(SEEDS),--count 20000)

bench: setup parts ## the measurements
	$(bin)/python -m bench

pictures: setup ## the pictures of the docs anew, from their sources
	$(bin)/python docs/pictures/render.py

lock: setup ## requirements.lock anew, from pyproject.toml
	$(uv) pip compile --quiet pyproject.toml --group dev --universal --python-version 3.11 \
		--generate-hashes --no-emit-index-url --no-emit-find-links -o requirements.lock
