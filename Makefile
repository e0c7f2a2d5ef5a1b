# `make demo` and `make test` need python3 (3.11 or newer) and make; they set up .venv themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Files are compiled when they are first imported, which is few of them, and not all at once.
PIP := $(BIN)/python -m pip --disable-pip-version-check install -q --no-compile -c constraints.txt
NEEDS := pyproject.toml constraints.txt

# No banner about other tools in the middle of a documentation build.
export NO_MKDOCS_2_WARNING := 1
# What is compiled once is kept, for the many processes that tests start.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo test test-label-studio pytest coverage lint debian bench docs install clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/installed ## see it work: methods and learners compared on a made-up crowd, and a report
	$(BIN)/crowdwise demo

test: ## lint, all tests and doctests, the documentation in strict mode; installs what they need, Chromium and Java too
	@$(MAKE) --no-print-directory -j 2 debian $(VENV)/installed-dev
	@$(MAKE) --no-print-directory -j 2 pytest lint

test-label-studio: $(VENV)/installed-dev ## against a real Label Studio server, in an environment of its own (1 GB)
	PYTHON=$(PYTHON) BIN=$(BIN) .ci/label-studio

pytest: $(VENV)/installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal --doctest-modules tests src/crowdwise

coverage: $(VENV)/installed-dev ## the lines that the quick tests run, as a table; no threshold
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n auto -m "not slow" tests --cov=crowdwise --cov-report=term:skip-covered

lint: $(VENV)/installed-dev ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check -q .
	$(BIN)/mypy

bench: $(VENV)/installed-dev ## speed beside crowd-kit, growth, reading, accuracy on real crowds: writes docs/benchmarks/
	$(BIN)/python benchmarks/run.py

docs: $(VENV)/installed-dev ## write the generated pages, then build the site into site/
	$(BIN)/python docs/generate.py
	$(BIN)/python -m mkdocs build --strict

debian:
	@.ci/debian

install: $(VENV)/installed-dev ## only set up .venv with everything the tests need

clean: ## remove .venv, the site and all caches
	rm -rf $(VENV) .venv-label-studio site build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests docs benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

# The tools that build the package are installed first, from the same pins as everything else.
$(VENV)/tools: $(NEEDS)
	$(PYTHON) -m venv $(VENV)
	$(PIP) pip hatchling editables setuptools
	@touch $@

$(VENV)/installed: $(VENV)/tools
	$(PIP) --no-build-isolation -e '.[deep,report]'
	@touch $@

# Libraries that results are compared with ask for more than we use of them (transformers, tensorboard) or for older
# versions (irrCAC): their own files suffice.
$(VENV)/installed-dev: $(VENV)/tools
	$(PIP) --no-build-isolation -e '.[dev]'
	$(PIP) --no-deps crowd-kit irrcac snorkel
	@touch $(VENV)/installed $@
