"""What the tests of every assignment share: its programs, its cases, its judge."""

import atexit
import os
import re
from dataclasses import dataclass

import nbformat

from classroom.grading import judge, sandbox
from classroom.grading.bench import Bench, Verdict, needed, try_case

FULL = os.environ.get("CLASSROOM") == "full"
"""`make test-classroom` tries every case; `make test` is content with fewer."""
REGION = re.compile(
    r"^( *)### BEGIN SOLUTION\n(.*?)^ *### END SOLUTION\n?", re.M | re.S
)
HIDDEN = re.compile(
    r"^ *### BEGIN HIDDEN TESTS\n.*?^ *### END HIDDEN TESTS\n?", re.M | re.S
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


@dataclass(frozen=True)
class Mistake:
    """Changes to the solution, and the one criterion that they violate."""

    name: str
    criterion: str
    changes: list[tuple[str, str]]
    """Each a text that occurs in the solution once, and its stand-in."""
    says: str = "fail: "
    """How the feedback begins."""


def changed(assignment: str, *changes: tuple[str, str]) -> dict[str, str]:
    """Return the solution with `new` for each `old`, which occurs in it once."""
    found = solution(assignment)
    for old, new in changes:
        names = [name for name, text in found.items() if old in text]
        assert len(names) == 1 and found[names[0]].count(old) == 1, (old, names)
        found[names[0]] = found[names[0]].replace(old, new)
    return found


# --- without a sandbox, which is faster; what an answer gets does not depend on it ---


def visible(assignment: str) -> dict[str, list[dict]]:
    """Return by criterion the cases that students see."""
    found: dict[str, list[dict]] = {}

    def check(criterion, *cases):
        found[criterion] = list(cases)

    notebook = nbformat.read(judge.notebook("source", assignment), as_version=4)
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade"):
            exec(HIDDEN.sub("", cell.source), {"check": check})
    return found


def verdict(
    assignment: str, answer: dict[str, str], criterion: str, cases: list[dict]
) -> Verdict:
    """Return the verdict of the first case that is not passed, else of the last one.

    Programs that the criterion does not need are not there at all.
    """
    source = judge.module(assignment)
    files = needed(source, criterion)
    desk = Bench({file: text for file, text in answer.items() if file in files})
    for case in cases:
        found = try_case(source, criterion, desk, case)
        if found.state != "pass":
            break
    return found


def lost(assignment: str, answer: dict[str, str], suspect: str) -> dict[str, str]:
    """Return what each criterion says that `answer` does not pass.

    The criterion `suspect` is tried with all cases. Any other that looks at what is not
    as in the solution is tried with its first case; the dearest of them alone, unless
    everything is to be tried.
    """
    right, cells = solution(assignment), judge.criteria(assignment)
    wrong = {file for file in right if answer[file] != right[file]}
    source = judge.module(assignment)
    others = [
        (cell.name, cell.cases[:1])
        for cell in sorted(cells, key=lambda cell: -cell.points)
        if cell.name != suspect and wrong.intersection(needed(source, cell.name))
    ]
    (every,) = (cell.cases for cell in cells if cell.name == suspect)
    said = {}
    for name, cases in [(suspect, every), *(others if FULL else others[:1])]:
        found = verdict(assignment, answer, name, cases)
        if found.state != "pass":
            said[name] = str(found)
    return said


# --- in a sandbox ---


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
