# Two commands are enough: `make lab` to read, `make test` to check. Both make .venv on first use.

ifeq ($(OS),Windows_NT)
PYTHON ?= python
BIN := .venv/Scripts
else
PYTHON ?= python3
BIN := .venv/bin
endif

# On Linux PyPI's torch brings CUDA, gigabytes of it. PyTorch's own CPU build comes with
#   make lab TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=
# More for JupyterLab, such as LAB_ARGS=--no-browser
LAB_ARGS ?=

PIP = $(BIN)/python -m pip install $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX))
INSTALL = $(PIP) -c constraints.txt
PYTEST = $(BIN)/python -m pytest -n 2
NBVAL = $(PYTEST) --nbval notebooks

.DEFAULT_GOAL := help
.PHONY: help lab test test-all wild browser variants mutants exhaustive bench notebooks claims mistakes lint

help: ## say what there is
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1: \2/p' Makefile

# No news and no look for updates: the course needs no network.
lab: .venv/installed ## read the course in JupyterLab
	$(BIN)/python -m jupyterlab --LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb \
		--LabApp.news_url=None --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate $(LAB_ARGS)

test: .venv/installed ## unit tests and doctests, then every output of every notebook compared
	$(PYTEST)
	$(NBVAL)

test-all: test lint wild browser variants mutants ## all that .ci/run checks

lint: .venv/installed ## ruff, for code and notebooks
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check

wild: .venv/installed-wild ## the shipped data against the real model, the recorder on Hugging Face's layers
	$(PYTEST) tests/test_trained_heads.py tests/test_journey.py

browser: .venv/installed ## every page in JupyterLab, in Chromium: it runs, can be moved, and opens again
	$(BIN)/python -m pytest -m browser tests/test_browser.py

variants: .venv/installed ## the notebooks on other CPU paths, from elsewhere, offline, warnings as errors
	OMP_NUM_THREADS=1 $(NBVAL)
	ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE $(NBVAL)
	$(if $(OFFLINE),,@echo "No network namespaces here, so the next run is the usual one, with network.")
	cd / && CUDA_VISIBLE_DEVICES= $(OFFLINE) "$(CURDIR)"/$(PYTEST) --nbval "$(CURDIR)"/notebooks
	$(PYTEST) -m variant

mutants: .venv/installed ## known bugs, put in one at a time: notebooks and unit tests must notice
	$(BIN)/python tests/mutants.py

exhaustive: .venv/installed ## every exercise on a thousand draws of its inputs, and many more random edits
	$(PYTEST) -m exhaustive --timeout=3600 tests/test_exercises.py
	$(BIN)/python tests/mutated_answers.py 1000

bench: .venv/installed ## our three implementations timed beside torch's own
	$(BIN)/python tests/bench.py

notebooks: .venv/installed ## run the notebooks and store what they print
	$(BIN)/python tests/make_notebooks.py

claims: .venv/installed ## write notebooks/what_holds.md from tests/claims.toml
	$(BIN)/python tests/make_what_holds.py

mistakes: .venv/installed ## write mhalesson/exercises/mistakes.md from the exercises
	$(BIN)/python tests/make_mistakes.py

# A network of its own, with nothing in it but the loopback that kernels talk over; empty where Linux is not.
LOOPBACK = ip link set lo up
OFFLINE = $(if $(shell unshare -rn $(LOOPBACK) >/dev/null 2>&1 && echo yes),unshare -rn sh -c '$(LOOPBACK) && exec "$$@"' sh)

TOO_OLD = This course needs Python 3.11 or newer; $(PYTHON) is %d.%d. Name another: make PYTHON=python3.12
CHECK = import sys; v = sys.version_info[:2]; sys.exit('$(TOO_OLD)' % v if v < (3, 11) else 0)

.venv/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c "$(CHECK)"
	$(PYTHON) -m venv .venv
	$(INSTALL) -e ".[test]"
	@echo installed > $@

.venv/installed-wild: .venv/installed
	$(INSTALL) -e ".[test,wild]"
	@echo installed > $@
