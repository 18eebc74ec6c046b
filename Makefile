# Every target sets itself up in .venv, which needs Python 3.11 or newer, pip and make.
#   make test PYTHON=python3.13     another Python (after `make clean`)
#   make test TESTS=tests/unit      some of the tests
#   make bench ARGS=--help          arguments for the program behind a target

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --quiet --disable-pip-version-check
# One more than the two processors of a small machine: some tests wait for a lease or a provider.
JOBS ?= 3
TESTS ?=
ARGS ?=

# What was compiled once is kept, whatever the caller's environment says: the tests start hundreds
# of processes, and without that each of them spends a second on compiling the same packages.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo test long fleet double pairs explore mutants chaos docs check screenshots bench clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.core  ## see it work
	@$(BIN)/evervec demo $(ARGS)

# A test that fails while others use the machine runs once more by itself, and fails the run if it
# fails again. One that passes then is named in the output, and is a defect to mend all the same.
test: check  ## check, then run every test
	@$(BIN)/pytest -n $(JOBS) --dist worksteal $(TESTS) $(ARGS) || { test $$? -eq 1 \
	  && echo && echo "FLAKY unless it fails again: every failed test runs once more, alone" \
	  && $(BIN)/pytest --verbose --last-failed --last-failed-no-failures none --maxfail 1 $(TESTS) $(ARGS); }

long: $(VENV)/.dev  ## run the tests that take minutes
	$(BIN)/pytest -m long -o faulthandler_timeout=3600 $(TESTS) $(ARGS)

# PyTorch and Ray are large, so they have an environment of their own.
fleet: FLEET := .venv-fleet
fleet: .venv-fleet/.fleet  ## install PyTorch and Ray, and run the tests that need them
	$(FLEET)/bin/pytest -n $(JOBS) --dist worksteal $(or $(TESTS),tests/st tests/fleet tests/conformance/test_embedder.py) $(ARGS)

double: $(VENV)/.dev  ## test the provider that stands in for real ones in tests
	$(BIN)/pytest -n $(JOBS) tests/double $(ARGS)

pairs: $(VENV)/.dev  ## run every test on every store with every index
	$(BIN)/pytest -n $(JOBS) --dist worksteal --every-pair $(TESTS) $(ARGS)

explore: $(VENV)/.dev  ## try schedules and faults, for a minute
	@PYTHONPATH=tests $(BIN)/python -m explorer $(ARGS)

mutants: $(VENV)/.dev  ## plant defects one at a time, and say which test finds each
	@PYTHONPATH=tests $(BIN)/python -m mutants --jobs $(JOBS) $(ARGS)

chaos: $(VENV)/.dev  ## break fleets of processes at random, and judge what is left
	@PYTHONPATH=tests $(BIN)/python -m chaos $(ARGS)

docs: $(VENV)/.dev  ## build the documentation site, in site/
	@PYTHONPATH=docs $(BIN)/python -m docsite

check: $(VENV)/.dev  ## lint, format, types, layers and security
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/bandit --quiet --recursive --severity-level medium --configfile pyproject.toml src

screenshots: $(VENV)/.dev  ## take pictures of the dashboard, in docs/pictures/
	@PYTHONPATH=tests $(BIN)/python -m support.screenshots $(ARGS)

bench: $(VENV)/.bench  ## measure against peers
	@$(BIN)/python -m benchmarks $(ARGS)

clean:  ## remove the environment and everything built
	rm -rf $(VENV) .venv-fleet build dist site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find src tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp stands for an installed set of packages, and is rebuilt when pyproject.toml changes.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit(f"evervec needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}: say make PYTHON=...")'
	@$(PYTHON) -m venv --clear $(VENV)
	@touch $@

.venv-fleet/.fleet: pyproject.toml
	@$(PYTHON) -m venv .venv-fleet
	@echo "setting up .venv-fleet: evervec[fleet]"
	@.venv-fleet/bin/python -m pip --quiet --quiet --disable-pip-version-check install --no-compile --editable '.[fleet]'
	@touch $@

$(VENV)/.core: EXTRA := [local]
$(VENV)/.dev: EXTRA := [dev]
$(VENV)/.bench: EXTRA := [bench]
$(VENV)/.core $(VENV)/.dev $(VENV)/.bench: pyproject.toml | $(VENV)/.made
	@echo "setting up $(VENV): evervec$(EXTRA)"
	@$(PIP) install --no-compile --editable '.$(EXTRA)'
	@touch $@ $(VENV)/.core
