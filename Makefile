# make demo and make test set up everything they need in .venv; make help lists the rest.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast check docs notebooks screenshots fuzz bench bench-quick clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (once; a few minutes on a slow line)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)

setup: ## Create .venv with pinned versions, if it is not there yet
	@if test -f $(READY) -a $(READY) -nt pyproject.toml -a $(READY) -nt constraints.txt; \
	 then echo "$(VENV) is ready, nothing to set up"; else $(MAKE) --no-print-directory $(READY); fi

demo: setup ## Meta-train R2-D2 on drawn characters, evaluate it, write an HTML report (1 to 4 minutes)
	@$(BIN)/handful demo

test: setup ## Run every test, one process per core
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile

test-fast: setup ## Run the tests that take less than a few seconds each
	@$(BIN)/python -m pytest -m "not slow"

check: setup ## Formatting, lint, strict types, then every test
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(MAKE) --no-print-directory test

docs: setup ## Build the documentation site into build/docs, with warnings as errors
	@$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs
	@echo "Open build/docs/index.html"

notebooks: setup ## Run the notebooks and write them with their output
	@$(BIN)/python -m tools.notebooks

screenshots: setup ## Take the pictures of the studio in docs/images again
	@$(BIN)/python -m tools.screenshots

MINUTES ?= 10
fuzz: setup ## Attack it for longer: hostile files for MINUTES=10, 200 kills of a training, long races and solver problems
	@$(BIN)/python -W ignore -m tests.hostile.fuzz --minutes $(MINUTES)
	@HANDFUL_FUZZ=1 $(BIN)/python -m pytest tests/hostile

bench: setup ## Measure speed against peers; writes benchmarks/RESULTS.md
	@$(BIN)/python -m benchmarks

bench-quick: setup ## The same in two minutes, with fewer repeats; prints, writes nothing
	@$(BIN)/python -m benchmarks --quick

clean: ## Remove the environment and all caches of this checkout
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
