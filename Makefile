# Every target makes the environment by itself: `make run` and `make test` are all a fresh machine needs.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Other versions of torch (for instance with CUDA): make install CONSTRAINTS=
CONSTRAINTS ?= constraints.txt

.DEFAULT_GOAL := help
.PHONY: help install develop run test check unit docs test-hard test-deploy test-native format clean

help: ## Show what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

install: $(VENV)/.installed ## Make .venv with feddag and what it needs to run

develop: $(VENV)/.developing ## The same with everything that the tests need

$(VENV)/.installed: pyproject.toml $(wildcard constraints.txt setup.py)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || \
	  { echo "make: '$(PYTHON) -m venv' failed: install Python 3.11 or newer with venv (Debian: python3-venv)"; exit 2; }
	$(BIN)/python -m pip install -q --upgrade pip
	$(BIN)/python -m pip install -q $(if $(CONSTRAINTS),-c $(CONSTRAINTS)) -e .
	@touch $@

$(VENV)/.developing: $(VENV)/.installed
	$(BIN)/python -m pip install -q $(if $(CONSTRAINTS),-c $(CONSTRAINTS)) -e '.[dev]'
	@touch $@

run: install ## Run the main job on embedded data (about a minute)
	$(BIN)/feddag run

test: develop check unit ## Everything that must hold: style, types, import layers, tests

check: develop
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: develop
	$(BIN)/python -m pytest -n 3 --dist worksteal

docs: develop ## The documentation as a site in build/site
	$(BIN)/mkdocs build --strict

test-hard: develop ## Thousands of attacks: mutated settings and messages, damaged files, full disks, kills (12 minutes)
	$(BIN)/python -m pytest -m hard -n 2

test-deploy: develop ## Deployments of real processes: kills, strangers, lost packets, a proxy (ten minutes)
	$(BIN)/python -m pytest -m deploy

test-native: develop ## The native trainer's tests under AddressSanitizer and UBSan
	sh tests/native/sanitize.sh $(BIN)/python

format: develop ## Let ruff put the code in order
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## Remove the environment and caches
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
