# Two commands on a fresh machine with Python 3.11 and make: `make demo` and `make test`.

PYTHON ?= python3
VENV := .venv
BENCH := .venv-bench
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH_READY := $(BENCH)/.ready
TRAINCHECK := .venv-traincheck
TRAINCHECK_READY := $(TRAINCHECK)/.ready
COMPILED := .venv-compiled
COMPILED_READY := $(COMPILED)/.ready
# Tests and benchmarks measure the arithmetic, not the scheduling of threads over each other.
export OMP_NUM_THREADS ?= 1
# Neighbours stay together, with the processes that they share: who is done first takes from the end.
BOTH := -n 2 --dist worksteal

.PHONY: help setup setup-bench compiled demo docs test test-compiled lint types unit fuzz faults test-gpu test-slow test-browser test-peers format simulate-scale \
	bench-overhead bench-exactness bench-check bench-watch bench-splits bench-gpu clean

help:
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(READY) ## set up .venv and nothing else

# torch first and by its exact version: what asks for it later then finds it installed.
$(READY): requirements-dev.txt constraints.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "instep needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt torch==2.13.0
	$(BIN)/python -m pip install --quiet -c constraints.txt -r requirements-dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

setup-bench: $(BENCH_READY) ## set up .venv-bench, with the packages we measure ourselves beside

$(BENCH_READY): benchmarks/requirements.txt constraints.txt pyproject.toml
	test -x $(BENCH)/bin/python || $(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet -c constraints.txt torch==2.13.0
	$(BENCH)/bin/python -m pip install --quiet -r benchmarks/requirements.txt
	test ! -f benchmarks/requirements-nodeps.txt || \
		$(BENCH)/bin/python -m pip install --quiet --no-deps -r benchmarks/requirements-nodeps.txt
	$(BENCH)/bin/python -m pip install --quiet hatchling editables
	$(BENCH)/bin/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	touch $@

compiled: $(COMPILED_READY) ## set up .venv-compiled, with `instep check` compiled by mypyc; needs a C compiler

# A wheel, not an editable install: what is compiled lies beside the modules, and must not lie in src.
$(COMPILED_READY): $(READY) hatch_build.py $(shell find src -name '*.py')
	rm -rf build/compiled
	INSTEP_COMPILED=1 $(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir build/compiled .
	test -x $(COMPILED)/bin/python || $(BIN)/python -m venv $(COMPILED)
	$(COMPILED)/bin/python -m pip install --quiet -c constraints.txt pytest pytest-xdist hypothesis
	$(COMPILED)/bin/python -m pip install --quiet --no-deps --force-reinstall build/compiled/*.whl
	touch $@

demo: $(READY) ## the guided tour: what goes wrong, how it is found, and the same loop in windows
	$(BIN)/python -m examples.tour --out out

test: lint types unit ## everything a contributor runs: lint, types, tests

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

unit: $(READY)
	$(BIN)/python -m pytest -q $(BOTH)

test-compiled: $(COMPILED_READY) ## the tests of the checker against the build that is compiled
	$(COMPILED)/bin/python -c 'import instep.check.execute.machine as m, sys; sys.exit(m.__file__.endswith(".py"))'
	$(COMPILED)/bin/python -m pytest -q $(BOTH) tests/check tests/rules tests/trace tests/test_cli.py tests/test_check_command.py

fuzz: $(READY) ## the property tests with fresh random examples, many more of them
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -q $(BOTH) tests/engine/test_properties.py \
		tests/engine/test_scaling.py tests/engine/test_arithmetic.py tests/splits tests/trace \
		tests/check/test_programs.py tests/check/test_fixing_properties.py tests/check/test_run.py

faults: $(READY) ## kills, full disks, bad numbers, no memory, lost ranks at random places; writes its table
	$(BIN)/python -m tests.faults --write

test-gpu: ## the tests that need a CUDA device, with the python that has one: make test-gpu GPU_PYTHON=...
	PYTHONPATH=src $(or $(GPU_PYTHON),$(BIN)/python) -m pytest -q -m gpu tests/gpu

test-browser: $(READY) ## the pages in a real Chromium: Debian's chromium and chromium-driver
	$(BIN)/python -m pytest -q -m browser -rs tests/reports tests/security

test-slow: $(READY) ## the tests that take minutes
	$(BIN)/python -m pytest -q $(BOTH) -m slow

test-peers: $(BENCH_READY) ## the tests that need the peers of the bench environment
	$(BENCH)/bin/python -m benchmarks.exactness --require-peers --check
	$(BENCH)/bin/python -m pytest -q -m peers tests/peers

bench-overhead: $(BENCH_READY) ## Python overhead per micro-batch, peers in the same run
	$(BENCH)/bin/python -m benchmarks.overhead --write

bench-exactness: $(BENCH_READY) ## relative error of every engine on ragged work
	$(BENCH)/bin/python -m benchmarks.exactness --write

bench-check: $(BENCH_READY) $(COMPILED_READY) ## lines per CPU second of `instep check`, beside Ruff and TorchFix
	$(BENCH)/bin/python -m benchmarks.check_speed --require-peers --write

bench-watch: $(BENCH_READY) $(TRAINCHECK_READY) ## step time under `instep.watch`, beside TrainCheck
	$(BENCH)/bin/python -m benchmarks.watch_overhead --write

bench-splits: $(BENCH_READY) ## gradient error, cost and memory of patches, beside MONAI and TorchIO
	$(BENCH)/bin/python -m benchmarks.splits --require-peers --write

bench-gpu: ## windows on a CUDA device, with the python that has one: make bench-gpu GPU_PYTHON=...
	PYTHONPATH=src:. $(or $(GPU_PYTHON),$(BENCH)/bin/python) -m benchmarks.gpu

# An environment of its own: it brings pandas, polars and numba.
$(TRAINCHECK_READY): constraints.txt
	test -x $(TRAINCHECK)/bin/python || $(PYTHON) -m venv $(TRAINCHECK)
	$(TRAINCHECK)/bin/python -m pip install --quiet -c constraints.txt torch==2.13.0
	$(TRAINCHECK)/bin/python -m pip install --quiet -c constraints.txt traincheck==0.2.0
	touch $@

simulate-scale: $(READY) ## a window on up to 16,384 ranks, and what failures cost: writes docs/scale.md
	$(BIN)/python -m benchmarks.scale --write

docs: $(READY) ## write docs/rules, and the README's table of rules and sample output
	$(BIN)/python -m docs.rule_pages

format: $(READY) ## let ruff lay out the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the environments and everything generated
	rm -rf $(VENV) $(BENCH) $(TRAINCHECK) $(COMPILED) build out .pytest_cache .mypy_cache .ruff_cache .hypothesis
