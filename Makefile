# Needs make and Python >= 3.11. Everything else goes into .venv, which is made on first use and again when pyproject.toml changes.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
MARKS  ?= not slow
PIP    := $(BIN)/python -m pip --quiet --disable-pip-version-check
# one thread per process: the tests run side by side, the benchmarks measure one core
ONE_THREAD := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help demo test test-medium test-slow test-extras test-importers test-pythons durations lint docs bench studies referee clean

help:  ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.core  ## best plans of attention and GEMM kernels on two chips, and of training GPT3-1T on 1024 H100
	@$(ONE_THREAD) $(BIN)/halley demo
	@echo
	@$(ONE_THREAD) $(BIN)/halley plan gpt3-1t --train --system '1024 x h100, nvlink 8, ib' --batch 2048

test: lint  ## ruff, mypy and the quick tests (minutes)
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2

test-medium: $(VENV)/.dev  ## tests that take more than half a second each
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 -m "medium and not slow"

test-slow: $(VENV)/.dev  ## the slow tests; with PARTS=12 PART=3 the third of twelve parts
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 -m slow $(if $(PARTS),--splits $(PARTS) --group $(PART))

test-importers: $(VENV)/.dev  ## installs torch and onnx, and runs the tests of networks and models against them
	$(PIP) install -e '.[torch,onnx]'
	$(ONE_THREAD) $(BIN)/python -m pytest -m 'not slow' tests/importers

test-extras: $(VENV)/.dev  ## installs ray, optuna, mcp and pyarrow, and runs the tests that need them
	$(PIP) install -e '.[ray,optuna,mcp,parquet]'
	$(ONE_THREAD) $(BIN)/python -m pytest -m 'not slow' tests/unit/test_sweep_cluster.py tests/unit/test_sweep_sampled.py tests/cli/test_tools.py tests/cli/test_sweep.py

test-pythons: $(VENV)/.dev  ## installs the wheel on every Python from 3.11 on that is found here, and runs a search
	$(BIN)/python tests/try_pythons.py

durations: $(VENV)/.dev  ## measures how long tests take, for tests/durations.json; MARKS='' takes hours for the slow ones too
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 -m '$(MARKS)' --store-durations
	$(BIN)/python tests/trim_durations.py $(LOGS)

lint: $(VENV)/.dev  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/mypy

docs: $(VENV)/.docs  ## the documentation as a site with search and API reference: build/site/index.html
	$(ONE_THREAD) $(BIN)/python -m sphinx -c docs -b html -W --keep-going -q -d build/doctrees . build/site

bench: $(VENV)/.dev  ## the benchmarks; writes benchmarks/latest.json
	$(ONE_THREAD) $(BIN)/python -m benchmarks.run

studies: $(VENV)/.dev  ## searches and writes docs/studies; takes up again where it was stopped
	$(ONE_THREAD) $(BIN)/python -m studies

referee: $(VENV)/.dev  ## winners of the published list by formula and by simulation; takes up again where it was stopped
	$(ONE_THREAD) $(BIN)/python -m validation.referee

clean:  ## removes what was built here
	rm -rf $(VENV) build dist docs/api .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests benchmarks examples validation studies -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python: expected 3.11 or newer; got $$($(PYTHON) --version 2>&1); do make PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "venv: expected the modules venv and ensurepip; got none; install your system's python3-venv package" >&2; exit 1; }

$(VENV)/.core: pyproject.toml | $(VENV)/bin/python
	@echo "installing halley into $(VENV)"
	@$(PIP) install -e .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	@echo "installing halley and its development tools into $(VENV)"
	@$(PIP) install -e '.[dev]'
	@touch $@ $(VENV)/.core

$(VENV)/.docs: pyproject.toml | $(VENV)/bin/python
	@echo "installing halley and what builds its documentation into $(VENV)"
	@$(PIP) install -e '.[docs]'
	@touch $@
