# Every way to use the lab. Targets that need the environment make it first.

PYTHON ?= python3
BIN := .venv/bin
NBVAL := --nbval --nbval-current-env --nbval-cell-timeout 180

.PHONY: help setup lab open scripts outputs figs data bench check test test-all evidence lint clean
.PHONY: classroom release grade feedback grades test-classroom

help: ## print this
	@echo "make TARGET, where TARGET is one of"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | \
		awk -F'|' '{printf "%-17s%s\n", $$1, $$2}'

setup: .venv/ready ## make .venv and install what the lab needs, once

.venv/ready: requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "The lab needs Python 3.10 or later: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet -r requirements.txt
	@touch $@

# .venv/dev-ready and .venv/classroom-ready: the groups of pyproject.toml (pip 25.1 knows them).
.venv/%-ready: .venv/ready
	$(BIN)/pip install --quiet --group $*
	@touch $@

# COLD=1 starts every process the plain way, without the warm one (see kit/run/warm.py).
export DDP_LAB_COLD := $(COLD)

# SLURM="--partition=gpu --gres=gpu:4 --time=60" NNODES=2: on machines of a cluster, with
# the ranks spread over them (see kit/run/slurm.py).
lab open: export DDP_LAB_SLURM := $(or $(SLURM),$(DDP_LAB_SLURM))
lab open: export DDP_LAB_NNODES := $(or $(NNODES),$(DDP_LAB_NNODES))

lab: setup ## execute all lessons into build/lab (NPROC=4, LESSONS="01 03", SLURM="...")
	$(BIN)/python -m tools.lab --nproc "$(NPROC)" $(LESSONS)

open: setup ## work through the lessons in JupyterLab, in copies of your own (work/)
	@$(BIN)/python -m tools.work
	$(BIN)/jupyter lab work/notebooks/00_start_here.ipynb

scripts: setup ## write the notebooks' programs into ddp_lab, running nothing
	$(BIN)/python -m tools.notebooks scripts

outputs: setup ## for authors: execute the notebooks in place, normalised (LESSONS="01")
	$(BIN)/python -m tools.notebooks outputs $(LESSONS)

figs: setup ## redraw figs/*.svg
	$(BIN)/python -m figs

data: setup ## fetch CIFAR-10, or draw the stand-in where there is no network
	$(BIN)/python -m ddp_lab.kit.cell.data

bench: setup ## measure launches, collectives, data and training, into build/bench
	$(BIN)/python -m bench

# A test that waits costs no core: how many workers -n auto means, tests/conftest.py says.
PYTEST := $(BIN)/python -m pytest -n auto
# What fails in a crowd runs once more, alone: who is starved passes, a mistake does not.
ALONE := || { test $$? -eq 1 && $(BIN)/python -m pytest $(NBVAL) --last-failed; }

check: lint ## style, types, rules, recorded evidence, each program on 2 ranks: < 2 minutes
	$(PYTEST) -m check tests

test: lint ## what CI runs: programs, kit, classroom and every cell of the notebooks
	$(PYTEST) $(NBVAL) -m "not (full or browser)" tests notebooks $(ALONE)

test-all: lint ## all numbers of ranks, races, floods, bombs, the browser, evidence anew
	$(PYTEST) $(NBVAL) -m "not alone" tests notebooks
	$(BIN)/python -m pytest -m alone tests
	$(BIN)/python -m tests.record_evidence --check

evidence: .venv/dev-ready ## for maintainers: record tests/evidence anew from live runs
	$(BIN)/python -m tests.record_evidence

# The classroom: see classroom/README.md. A is the assignment.
COURSE := $(BIN)/python -m classroom.engine

# nbgrader reads the configuration of the folder where it is started.
classroom: .venv/classroom-ready ## the course in JupyterLab, with nbgrader's Formgrader
	@mkdir -p classroom/exchange
	cd classroom && PATH="$(CURDIR)/$(BIN):$$PATH" ../$(BIN)/jupyter lab

release: .venv/classroom-ready ## write the students' version of A=ring
	$(COURSE) release $(A)

grade: .venv/classroom-ready ## grade all that was handed in for A=ring (UNSAFE=1, AGAIN=1)
	$(COURSE) grade $(A) $(WHO) $(if $(UNSAFE),--unsafe) $(if $(AGAIN),--again)

feedback: .venv/classroom-ready ## write a page for each student of A=ring
	$(COURSE) feedback $(A)

grades: .venv/classroom-ready ## write classroom/grades.csv for Canvas and Moodle
	$(COURSE) grades

test-classroom: lint ## solutions, starters, mistakes and hostile answers, in full
	$(PYTEST) -m "not alone" tests/classroom
	$(BIN)/python -m pytest -m alone tests/classroom

lint: .venv/dev-ready .venv/classroom-ready ## ruff and mypy: style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean: ## remove build and caches; .venv and data stay
	rm -rf build .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
