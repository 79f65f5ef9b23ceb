# Every way to use the lab. Targets that need the environment make it first.

PYTHON ?= python3
BIN := .venv/bin
NBVAL := --nbval --nbval-current-env --nbval-cell-timeout 180

.PHONY: help setup lab open scripts outputs figs data bench test lint clean

help: ## print this
	@echo "make TARGET, where TARGET is one of"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | \
		awk -F'|' '{printf "%-11s%s\n", $$1, $$2}'

setup: .venv/ready ## make .venv and install requirements.txt, once

.venv/ready: requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "The lab needs Python 3.10 or later: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

# COLD=1 starts every process the plain way, without the warm one (see kit/warm.py).
export DDP_LAB_COLD := $(COLD)

lab: setup ## execute all lessons into build/lab (NPROC=4, LESSONS="01 03", COLD=1)
	$(BIN)/python -m ddp_lab.kit.lab --nproc "$(NPROC)" $(LESSONS)

open: setup ## work through the lessons in JupyterLab
	$(BIN)/jupyter lab notebooks/00_start_here.ipynb

scripts: setup ## write the notebooks' programs into ddp_lab, running nothing
	$(BIN)/python -m ddp_lab.kit.notebooks scripts

outputs: setup ## for authors: execute the notebooks in place, normalised (LESSONS="01")
	$(BIN)/python -m ddp_lab.kit.notebooks outputs $(LESSONS)

figs: setup ## redraw figs/*.svg
	$(BIN)/python -m ddp_lab.kit.figures

data: setup ## fetch CIFAR-10, or draw the stand-in where there is no network
	$(BIN)/python -m ddp_lab.kit.data

bench: setup ## measure launches, collectives, data and training, into build/bench
	$(BIN)/python -m ddp_lab.kit.bench

test: setup lint ## check programs, kit and figures (pytest), then the notebooks (nbval)
	$(BIN)/python -m pytest tests
	$(BIN)/python -m pytest $(NBVAL) notebooks

lint: setup ## ruff: style of the code, and of the notebooks' code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

clean: ## remove build and caches; .venv and data stay
	rm -rf build .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
