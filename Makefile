# Everything but a real vLLM runs in .venv, made from the lock files; caches of pip stay where pip keeps them. No target changes the system.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin

# Tiers of tests that exist, and how each is run; TIERS=all runs every one.
ALL_TIERS := fast engine
KNOWN_TIERS := $(ALL_TIERS) qdrant cluster
TIERS ?= fast
RUN_fast = $(BIN)/python -m pytest -n auto --maxprocesses=4 -q -m 'not soak and not engine and not qdrant and not cluster' $(ARGS)
# One process: engines are shared by the tests, and each takes a core.
RUN_engine = $(BIN)/python scripts/engine_environment.py make && \
  $(BIN)/python -m pytest tests/engine tests/contract -q -m engine --durations=5 $(ARGS)
# One process: the tests share one control plane.
RUN_cluster = $(BIN)/python scripts/cluster_binaries.py make && \
  $(BIN)/python -m pytest tests/cluster -q -m cluster --durations=5 $(ARGS)
RUN_qdrant = $(BIN)/python -m pytest -q -m qdrant --durations=5 $(ARGS)
CHOSEN := $(if $(filter all,$(TIERS)),$(ALL_TIERS),$(TIERS))
UNKNOWN := $(filter-out $(KNOWN_TIERS),$(CHOSEN))

.PHONY: help demo test test-engine test-cluster gen lint format bench bench-engine test-soak lock clean test-harness test-engine-versions bench-plugin test-qdrant

help: ## what there is to run
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 22

demo: .venv/demo.stamp $(if $(filter sharegpt,$(DATA)),.venv/sharegpt.stamp) ## one bursty workload under fcfs and under sagesched, side by side (DATA=topics|sharegpt|FILE.jsonl LOAD=1.1 SEED=1 ARGS=...)
	@$(BIN)/sagesched demo $(if $(DATA),--data '$(DATA)') $(if $(LOAD),--load $(LOAD)) $(if $(SEED),--seed $(SEED)) $(ARGS)

test: .venv/dev.stamp ## unit, law, contract and end-to-end tests (TIERS=all for every tier)
	@test -z '$(UNKNOWN)' || { echo "test: no tier '$(UNKNOWN)'; there are: $(KNOWN_TIERS) (or all)" >&2; exit 2; }
	@$(foreach tier,$(CHOSEN),{ echo "tier $(tier)" && $(RUN_$(tier)); } || exit;)

test-engine: ## the tests against a real vLLM on a CPU (its environment, 5 GB, is made once, outside this folder)
	@$(MAKE) --no-print-directory test TIERS=engine

test-cluster: ## the tests against a real Kubernetes control plane, built from Go modules once (about 8 minutes, outside this folder)
	@$(MAKE) --no-print-directory test TIERS=cluster

test-harness: .venv/dev.stamp ## schedulers without a model in the real vLLM's own loop (after `make test-engine`, whose environment it uses)
	@$(BIN)/python scripts/engine_harness.py -q --durations=3 $(ARGS)

test-engine-versions: .venv/dev.stamp ## schedulers without a model on every vLLM from 0.29 to the newest on PyPI (20 GB outside this folder, needs uv)
	@$(BIN)/python scripts/engine_versions.py $(ARGS)

test-qdrant: ## the tests against a real Qdrant server: QDRANT_BINARY, or a `qdrant` on PATH
	@$(MAKE) --no-print-directory test TIERS=qdrant

gen: .venv/dev.stamp ## the generated files: settings schema and page, the CRD with its page and its copy in the chart, the wire package
	@$(BIN)/python scripts/generate.py

lint: .venv/dev.stamp ## ruff, mypy strict, import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: .venv/dev.stamp ## what ruff can put right by itself
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

bench: .venv/dev.stamp ## prediction, proxy, streaming and queue against their limits; writes build/bench.json
	@$(BIN)/python -m bench $(ARGS)

bench-engine: .venv/dev.stamp .venv/sharegpt.stamp ## five orders in a real vLLM on the same arrivals, about two hours; writes build/bench-engine.json
	@$(BIN)/python scripts/engine_environment.py make
	@$(BIN)/python -m bench.engine $(ARGS)

bench-plugin: .venv/dev.stamp ## what our scheduler adds to a step of vLLM's; writes build/bench-plugin.json
	@$(BIN)/python scripts/engine_environment.py make
	@$(BIN)/python -m bench.plugin $(ARGS)

test-soak: .venv/dev.stamp ## 10,000 requests under faults, 1,000 swaps of settings, a million broken streams; bounded in time
	@$(BIN)/python -m pytest tests/soak -m soak -s $(ARGS)

lock: ## the lock files anew from pyproject.toml (needs uv on PATH)
	@command -v uv >/dev/null || { echo "lock: needs uv; get it with: $(PYTHON) -m pip install uv" >&2; exit 2; }
	@for pair in cli:demo dev:dev sharegpt:sharegpt sidecar:sidecar operator:operator sim:sim; do \
	  uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --no-annotate --python-version 3.11 \
	    --extra $${pair%%:*} pyproject.toml -o requirements/$${pair##*:}.txt; done
	@uv pip compile -q --universal --generate-hashes --no-emit-index-url --no-header --no-annotate --python-version 3.11 \
	  -c requirements/dev.txt requirements/harness.in -o requirements/harness.txt
	@uv pip compile -q --python-platform x86_64-manylinux_2_28 --generate-hashes --no-emit-index-url --no-header --no-annotate \
	  --python-version 3.11 --override requirements/engine.overrides requirements/engine.in -o requirements/engine.txt

clean: ## everything that was made here
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# pip reads only the lock files: versions and hashes are the ones that were tested.
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "SageSched needs Python 3.11 or newer, but '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Name another one: make PYTHON=python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "'$(PYTHON)' cannot make virtual environments. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 2; }
	@echo "making .venv"
	@$(PYTHON) -m venv .venv

.venv/demo.stamp: requirements/demo.txt pyproject.toml | .venv/bin/python
	@echo "installing what the demo needs (requirements/demo.txt)"
	@$(INSTALL) -r requirements/demo.txt
	@$(INSTALL) --no-deps --no-build-isolation -r requirements/build.txt
	@$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

.venv/dev.stamp: requirements/dev.txt .venv/demo.stamp
	@echo "installing what the tests need (requirements/dev.txt)"
	@$(INSTALL) -r requirements/dev.txt
	@touch $@

.venv/sharegpt.stamp: requirements/sharegpt.txt .venv/demo.stamp
	@echo "installing ShareGPT's prompts and answers (requirements/sharegpt.txt)"
	@$(INSTALL) -r requirements/sharegpt.txt
	@touch $@
