"""What the tests of every assignment share: its solution, its starter, its judge."""

import atexit
import os
import re

import nbformat

from classroom.grading import judge, sandbox
from classroom.grading.bench import Bench

FULL = os.environ.get("CLASSROOM") == "full"
"""`make test-classroom` tries every case; `make test` is content with fewer."""
REGION = re.compile(
    r"^( *)### BEGIN SOLUTION\n(.*?)^ *### END SOLUTION\n?", re.M | re.S
)
STUB = r"\1### YOUR CODE\n\1raise NotImplementedError\n"  # as in nbgrader_config.py
UNSAFE = sandbox.available() is not None
BOX = Bench({}) if UNSAFE else sandbox.Sandbox({})
"""One for all tests: a new one imports torch anew."""
atexit.register(BOX.close)


def programs(assignment: str) -> dict[str, str]:
    """Return the programs in the source notebook, marks included."""
    wanted = judge.module(assignment).PROGRAMS
    found, note = judge.answers(judge.notebook("source", assignment), wanted)
    assert not note, note
    return found


def solution(assignment: str) -> dict[str, str]:
    """Return the reference solution's programs."""
    return {n: REGION.sub(r"\2", t) for n, t in programs(assignment).items()}


def starter(assignment: str) -> dict[str, str]:
    """Return the programs as a student gets them."""
    return {n: REGION.sub(STUB, t) for n, t in programs(assignment).items()}


def changed(assignment: str, old: str, new: str) -> dict[str, str]:
    """Return the solution with `new` for `old`, which occurs in it once."""
    found = solution(assignment)
    names = [name for name, text in found.items() if old in text]
    assert len(names) == 1 and found[names[0]].count(old) == 1, (old, names)
    return found | {names[0]: found[names[0]].replace(old, new)}


def box(answer: dict[str, str], limits: sandbox.Limits) -> Bench:
    """Return BOX with the programs `answer` and all of its time."""
    if not UNSAFE:
        if limits != BOX.limits:
            BOX.close()
        BOX.limits, BOX.left = limits, limits.seconds
    BOX.programs = answer
    return BOX


def _limits(source) -> sandbox.Limits:
    return getattr(source, "LIMITS", sandbox.Limits())


def judged(assignment: str, answer: dict[str, str], only=None) -> dict[str, dict]:
    """Return what the judge says of the programs `answer`, by criterion."""
    cells = [
        cell for cell in judge.criteria(assignment) if only is None or cell.name in only
    ]
    source = judge.module(assignment)
    found, works = judge.try_all(source, cells, box(answer, _limits(source)))
    assert works, found
    return found


def states(found: dict[str, dict]) -> dict[str, str]:
    """Return the state of each criterion."""
    return {name: criterion["state"] for name, criterion in found.items()}


def as_notebook(assignment: str, answer: dict[str, str]) -> nbformat.NotebookNode:
    """Return what a student with the programs `answer` would hand in."""
    notebook = nbformat.read(judge.notebook("source", assignment), as_version=4)
    wanted = judge.module(assignment).PROGRAMS
    for cell in notebook.cells:
        file = wanted.get(cell.metadata.get("nbgrader", {}).get("grade_id"))
        if file in answer:
            cell.source = cell.source.partition("\n")[0] + "\n" + answer[file]
    return notebook
