"""Each assignment: the solution passes, the starter does not, a mistake has its price.

Whoever adds an assignment writes mistakes/NAME.py, and it is tested here.
"""

import importlib

import pytest
from course import FULL, changed, lost, solution, starter, verdict, visible

from classroom.grading import judge

ASSIGNMENTS = judge.assignments()
CRITERIA = [
    pytest.param(name, cell, id=f"{name}: {cell.name}")
    for name in ASSIGNMENTS
    for cell in judge.criteria(name)
]
MISTAKES = [
    pytest.param(name, mistake, id=f"{name}: {mistake.name}")
    for name in ASSIGNMENTS
    for mistake in importlib.import_module(f"mistakes.{name}").MISTAKES
]


@pytest.mark.parametrize("assignment", ASSIGNMENTS)
def test_the_points_are_ten(assignment):
    cells = judge.criteria(assignment)
    assert {cell.name for cell in cells} == set(judge.module(assignment).CRITERIA)
    assert sum(cell.points for cell in cells) == 10


@pytest.mark.parametrize(("assignment", "cell"), CRITERIA)
def test_a_criterion_has_visible_and_hidden_cases(assignment, cell):
    shown, hidden = split(assignment, cell)
    assert shown and hidden
    assert [*shown, *hidden] == cell.cases


@pytest.mark.parametrize(("assignment", "cell"), CRITERIA)
def test_the_solution_gets_full_marks(assignment, cell):
    shown, hidden = split(assignment, cell)
    cases = cell.cases if FULL else [shown[-1], hidden[0]]
    for case in cases:
        found = verdict(assignment, solution(assignment), cell.name, [case])
        assert found.state == "pass", (case, found)


@pytest.mark.parametrize(("assignment", "cell"), CRITERIA)
def test_the_starter_gets_nothing(assignment, cell):
    shown, _ = split(assignment, cell)
    found = verdict(assignment, starter(assignment), cell.name, shown[:1])
    # A diagnosis is read and never executed.
    read = cell.name.endswith("_diagnosis")
    words = "there is no DIAGNOSES" if read else "NotImplementedError"
    assert found.state == "not yet" and words in found.words, found


@pytest.mark.parametrize(("assignment", "mistake"), MISTAKES)
def test_a_mistake_costs_its_criterion(assignment, mistake):
    answer = changed(assignment, *mistake.changes)
    said = lost(assignment, answer, mistake.criterion)
    assert list(said) == [mistake.criterion], said
    assert said[mistake.criterion].startswith(mistake.says), said


def split(assignment: str, cell: judge.Criterion) -> tuple[list[dict], list[dict]]:
    """Return the visible and the hidden cases of a criterion."""
    shown = visible(assignment).get(cell.name, [])
    return shown, [case for case in cell.cases if case not in shown]
