# What authors and instructors do besides; the Makefile reads it where it is there.

.PHONY: course outputs figs check test test-all evidence lock lint
.PHONY: classroom release handout grade feedback gradescope grades
.PHONY: test-classroom book open-book epub

# .venv/dev-ready and .venv/classroom-ready: the groups of pyproject.toml (pip 25.1 knows them).
.venv/%-ready: .venv/ready
	$(BIN)/pip install --quiet --group $* $(CONSTRAINTS)
	@touch $@

##@ to write lessons, and to test

course: setup ## write what follows from tools/course.py: README, headers, numbers
	$(BIN)/python -m tools.course

outputs: setup ## for authors: execute the notebooks in place, normalized (LESSONS="01")
	$(BIN)/python -m tools.notebooks outputs $(LESSONS)

figs: setup ## redraw figs/*.svg
	$(BIN)/python -m figs

# The book needs no PyTorch. Where the lab is not installed, a small environment does.
BOOK := $(if $(wildcard .venv/ready),.venv,build/book-env)
SPHINX := $(BOOK)/bin/sphinx-build --quiet --fail-on-warning --keep-going

build/book-env/book-ready: pyproject.toml
	$(PYTHON) -m venv build/book-env
	build/book-env/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	build/book-env/bin/pip install --quiet --group book
	@touch $@

book: $(BOOK)/book-ready ## the lessons as pages to read, into build/book
	$(SPHINX) -c book . build/book
	@echo "build/book/README.html"

open-book: book ## the same, opened in a browser
	@$(BOOK)/bin/python book/serve.py

epub: $(BOOK)/book-ready ## the same as one file for readers of books, build/epub/ddp-lab.epub
	$(SPHINX) -b epub -c book . build/epub

# It needs no Jupyter: without .venv the PyTorch of $(PYTHON) does.
gpus: ## prove the lab on this machine's accelerators, and record it (recorded/)
	@$(if $(wildcard .venv/ready),$(BIN)/python,$(PYTHON)) -m tools.gpus

# Which tests each of these runs, and which are left, says a table in CONTRIBUTING.md.
# How many workers -n auto means, tests/conftest.py says.
PYTEST := $(BIN)/python -m pytest -p no:nbval -n auto --dist loadfile --no-loadscope-reorder

# Containers often set it: then each worker compiles all tests again, 3 seconds.
unexport PYTHONDONTWRITEBYTECODE

# The tool's house has the same rings.
HOUSE := $(MAKE) -C whichrank PYTHON=$(CURDIR)/$(BIN)/python

check: lint ## style, types, rules, and what is a function of a record
	$(PYTEST) --dist worksteal -m check tests
	$(HOUSE) check

test: lint .venv/book-ready ## each promise once, on running programs; no cell of a lesson (make lab)
	$(PYTEST) --reruns 1 -m "not (full or browser or alone)" tests
	$(HOUSE) test

test-all: lint .venv/book-ready .venv/browser-ready ## all there is: each number of ranks, mistake, race, browser; an hour
	$(PYTEST) -m "not alone" tests
	$(BIN)/python -m pytest -m alone tests
	$(HOUSE) test-all
	$(MAKE) lab

evidence: .venv/dev-ready ## for maintainers: record what tests explain anew from live runs
	$(HOUSE) evidence

lock: $(patsubst %,.venv/%-ready,dev book browser classroom) ## for maintainers: keep this .venv's versions (constraints.txt)
	$(BIN)/pip freeze --exclude-editable | grep -vE '^(nvidia|cuda|triton)' > constraints.txt

lint: .venv/dev-ready .venv/classroom-ready ## ruff and mypy: style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

##@ to teach

# The classroom: see classroom/README.md. A is the assignment, COURSE the folder of a
# course that is kept elsewhere, as in COURSE=~/my-course.
ENGINE := $(BIN)/python -m classroom.engine
$(if $(word 2,$(COURSE)),$(error COURSE=$(COURSE): make takes no path with a space))
export DDP_LAB_COURSE := $(abspath $(patsubst ~/%,$(HOME)/%,$(COURSE)))

classroom: export JUPYTER_CONFIG_PATH := $(CURDIR)/classroom
classroom: .venv/classroom-ready ## the course in JupyterLab, with nbgrader's Formgrader
	@mkdir -p "$(or $(DDP_LAB_COURSE),classroom)/exchange"
	cd "$(or $(DDP_LAB_COURSE),classroom)" && \
		PATH="$(CURDIR)/$(BIN):$$PATH" jupyter lab $(AS_ROOT)

release: .venv/classroom-ready ## write the students' version of A=ring
	$(ENGINE) release $(A)

handout: .venv/classroom-ready ## write what students get, with A=ring or all released (ANSWERS=1)
	$(ENGINE) handout $(A) $(if $(ANSWERS),--answers)

grade: .venv/classroom-ready ## grade what was handed in for A=ring (AGAIN=1, ONLY="right", UNSAFE=1)
	$(ENGINE) grade $(A) $(WHO) $(if $(UNSAFE),--unsafe) $(if $(AGAIN),--again) \
		$(addprefix --only ,$(ONLY))

feedback: .venv/classroom-ready ## write a page for each student of A=ring
	$(ENGINE) feedback $(A)

gradescope: .venv/classroom-ready ## build an autograder.zip of A=ring for Gradescope
	$(BIN)/python -m classroom.extras.gradescope $(A)

grades: .venv/classroom-ready ## write the grades for Canvas and for a person
	$(BIN)/python -m classroom.extras.grades

test-classroom: lint ## solutions, starters, mistakes, hostile answers; of A=ring, or all
	$(PYTEST) -m "not alone" $(if $(A),-k "$(A)") \
		tests/classroom$(if $(DDP_LAB_COURSE),/test_solutions.py)
	$(if $(A)$(DDP_LAB_COURSE),,$(BIN)/python -m pytest -m alone tests/classroom)
