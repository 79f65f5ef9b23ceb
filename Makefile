# Every way to use the lab. Targets that need the environment make it first.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: help setup lab open scripts data bench gpus clean
$(foreach name,LESSON NPROCS NPROC_PER_NODE,$(if $(filter command line,$(origin $(name))),\
	$(error $(name)=$($(name)) is none of its words: NPROC=4, JOBS=1, LESSONS="01 03")))

help: ## print this
	@echo "make TARGET, where TARGET is one of"
	@awk '/^##@/ {print "\n" substr($$0, 5)} \
		/^[a-z-]+:.*## / {split($$0, part, /:|## /); sub(/.*## /, ""); \
			printf "  %-15s%s\n", part[1], $$0}' $(MAKEFILE_LIST)

# Rented machines and containers are root's, and JupyterLab asks whether that is meant.
AS_ROOT = $(if $(filter 0,$(shell id -u)),--allow-root)

##@ to learn

open: setup ## work through the lessons in JupyterLab, in copies of your own (work/)
	@$(BIN)/python -m tools.work
	PATH="$(CURDIR)/$(BIN):$$PATH" jupyter lab $(AS_ROOT) --notebook-dir="$(CURDIR)/work" \
		--LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb

lab: setup ## run all lessons, compare outputs, into build/lab (NPROC=4, JOBS=1, LESSONS="01 03")
	$(BIN)/python -m tools.lab --nproc "$(NPROC)" --jobs "$(JOBS)" $(LESSONS)

setup: .venv/ready ## make .venv and install what the lab needs, once

# LOCKED=1 installs the versions with which make test has passed; else the newest.
CONSTRAINTS = $(if $(LOCKED),--constraint constraints.txt)

# Otherwise JupyterLab's question about news covers the first output of a lesson.
QUIET := {"@jupyterlab/apputils-extension:notification": \
	{"fetchNews": "false", "checkForUpdates": false}}

.venv/ready: requirements.txt pyproject.toml whichrank/pyproject.toml ddp_lab/kit/cell/ipython_config.py
	@command -v $(PYTHON) >/dev/null || { echo "There is no program $(PYTHON)."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "The lab needs Python 3.10 or later: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	@echo "Fetching PyTorch and JupyterLab, once: about 6 GB on disk, 2 to 8 minutes."
	$(BIN)/pip install -r requirements.txt $(CONSTRAINTS)
	@mkdir -p .venv/etc/ipython && cp ddp_lab/kit/cell/ipython_config.py .venv/etc/ipython
	@mkdir -p .venv/share/jupyter/lab/settings && \
		echo '$(QUIET)' > .venv/share/jupyter/lab/settings/overrides.json
	@touch $@

# COLD=1 starts every process the plain way, without the warm one (see whichrank's run/warm.py).
export WHICHRANK_COLD := $(COLD)
# In a job of SLURM, NNODES=2 shares the ranks of each run between two nodes of it.
lab open: export WHICHRANK_NNODES := $(NNODES)

scripts: setup ## write the notebooks' programs into ddp_lab, running nothing
	$(BIN)/python -m tools.notebooks scripts

data: setup ## fetch CIFAR-10, or draw the stand-in where there is no network
	$(BIN)/python -m ddp_lab.data

bench: setup ## measure launches, collectives, data and training, into build/bench
	$(BIN)/python -m bench
	$(BIN)/python whichrank/bench/cost.py

clean: ## remove build and caches; .venv and data stay
	rm -rf build .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

# What authors and instructors do besides; students have no such file.
-include authors.mk
