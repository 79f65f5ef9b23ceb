"""What the tests of every assignment share: its programs, its cases, its judge."""

import ast
import functools
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import closing, suppress
from pathlib import Path

import nbformat
import pytest
from ranks import launch

from classroom.engine import judge, runner, sandbox
from classroom.engine.assignment import (
    Assignment,
    Criterion,
    home,
    load,
    needed,
    notebook,
)
from classroom.engine.assignment import criteria as criteria_of
from classroom.engine.check import try_case
from classroom.engine.rig import Rig
from classroom.engine.verdict import Verdict
from ddp_lab.kit.launch import WARM
from whichrank import RunFailed
from whichrank.run.channels import LENT
from whichrank.run.here import environment

REGION = re.compile(
    r"^( *)### BEGIN SOLUTION\n(.*?)^ *### END SOLUTION\n?", re.M | re.S
)
HIDDEN = re.compile(
    r"^ *### BEGIN HIDDEN TESTS\n.*?^ *### END HIDDEN TESTS\n?", re.M | re.S
)
STUB = r"\1### YOUR CODE\n\1raise NotImplementedError\n"  # as in nbgrader_config.py
UNSAFE = sandbox.available() is not None
RING = load("ring")


@functools.cache
def _programs(name: str) -> dict[str, str]:
    """Return the programs in the source notebook, marks included."""
    found, note = judge.answers(notebook("source", name), files_of(name))
    assert not note, note
    return found


def files_of(name: str) -> dict[str, str]:
    """Return PROGRAMS of an assignment, whose module may import torch: seconds."""
    text = (home(name) / "assignments" / name / "criteria.py").read_text()
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PROGRAMS":
            with suppress(ValueError):  # no literal
                return ast.literal_eval(node.value)
    return dict(load(name).PROGRAMS)


def solution(name: str) -> dict[str, str]:
    """Return the reference solution's programs."""
    return {n: REGION.sub(r"\2", t) for n, t in _programs(name).items()}


def starter(name: str) -> dict[str, str]:
    """Return the programs as a student gets them."""
    return {n: REGION.sub(STUB, t) for n, t in _programs(name).items()}


def changed(name: str, *changes: tuple[str, str]) -> dict[str, str]:
    """Return the solution with `new` for each `old`, which occurs in it once."""
    found = solution(name)
    for old, new in changes:
        files = [file for file, text in found.items() if old in text]
        assert len(files) == 1 and found[files[0]].count(old) == 1, (old, files)
        found[files[0]] = found[files[0]].replace(old, new)
    return found


@functools.cache
def cells(name: str) -> tuple[Criterion, ...]:
    """Return the criteria of an assignment, with all cases."""
    return tuple(criteria_of(name))


@functools.cache
def visible(name: str) -> dict[str, list[dict]]:
    """Return by criterion the cases that students see."""
    found: dict[str, list[dict]] = {}

    def check(criterion, *cases):
        found[criterion] = list(cases)

    for cell in nbformat.read(notebook("source", name), as_version=4).cells:
        if cell.metadata.get("nbgrader", {}).get("grade"):
            exec(HIDDEN.sub("", cell.source), {"check": check})
    return found


def some(names: Iterable[str], *quick: str) -> list:
    """Return parameters of a test: all but `quick` are left to `make test-all`."""
    full = [pytest.mark.full]
    return [pytest.param(name, marks=[] if name in quick else full) for name in names]


# --- without a sandbox, which is faster; what an answer gets does not depend on it ---


class Forks(Rig):
    """A rig whose ranks have no launcher, only what is in ../ranks.py."""

    def _execute(self, header, files):
        folder = Path(tempfile.mkdtemp(prefix="classroom-"))
        try:
            runner.fill(folder, header, files)
            program, limit = folder / "harness.py", header["timeout"]
            try:
                run = launch(header["ranks"], program, str(folder), limit)
            except RunFailed as failed:
                run = failed.run
            answer = runner.told(run, folder)
            return answer, runner.collect(folder / "out", answer)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def verdict(
    name: str, answer: dict[str, str], criterion: str, cases: list[dict]
) -> Verdict:
    """Return the verdict of the first case that is not passed, else of the last one.

    Programs that the criterion does not need are not there at all.
    """
    assignment = load(name)
    files = needed(assignment, criterion)
    rig = Forks(assignment, {f: text for f, text in answer.items() if f in files})
    for case in cases:
        found = try_case(rig, criterion, case)
        if found.state != "pass":
            break
    return found


def others(name: str, answer: dict[str, str], *suspects: str) -> list[Criterion]:
    """Return the criteria but `suspects` that look at what `answer` has changed.

    The one with the most points comes first.
    """
    right = solution(name)
    wrong = {file for file in right if answer[file] != right[file]}
    return [
        cell
        for cell in sorted(cells(name), key=lambda cell: -cell.points)
        if cell.name not in suspects
        and wrong.intersection(needed(load(name), cell.name))
    ]


# --- in a sandbox ---

if LENT in os.environ:  # then the judge's warm process is a fork of that of these tests
    sandbox.PYTHON = WARM.python(environment()) or sandbox.PYTHON


def box(
    assignment: Assignment, answer: dict[str, str], limits: sandbox.Limits | None = None
) -> Rig:
    """Return a sandbox for the programs `answer`, if there are any here."""
    if UNSAFE:
        return Rig(assignment, answer)
    return sandbox.Sandbox(assignment, answer, limits)


def judged(name: str, answer: dict[str, str], only=None) -> dict[str, dict]:
    """Return what the judge says of the programs `answer`, by criterion."""
    wanted = [cell for cell in cells(name) if only is None or cell.name in only]
    with closing(box(load(name), answer)) as rig:
        return judge.try_all(rig, wanted)


def states(found: dict[str, dict]) -> dict[str, str]:
    """Return the state of each criterion."""
    return {name: criterion["state"] for name, criterion in found.items()}


def as_notebook(name: str, answer: dict[str, str]) -> nbformat.NotebookNode:
    """Return what a student with the programs `answer` would hand in."""
    source = nbformat.read(notebook("source", name), as_version=4)
    wanted = load(name).PROGRAMS
    for cell in source.cells:
        file = wanted.get(cell.metadata.get("nbgrader", {}).get("grade_id"))
        if file in answer:
            cell.source = cell.source.partition("\n")[0] + "\n" + answer[file]
    return source
