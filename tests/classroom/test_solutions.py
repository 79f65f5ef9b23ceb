"""Each assignment: the solution passes, the starter does not, a mistake has its price.

A new assignment is tested here as soon as its folder and its notebook are there.
"""

import re

import pytest
from course import cells, changed, others, solution, starter, verdict, visible

from classroom.engine.assignment import (
    COURSE,
    LAB,
    Criterion,
    home,
    load,
    mistakes,
    names,
    needed,
)

pytestmark = pytest.mark.sandbox

ASSIGNMENTS = [name for name in names() if home(name) == COURSE]
"""Of a course in a folder of its own, its own; else the lab's."""
CRITERIA = [
    pytest.param(name, cell, id=f"{name}: {cell.name}")
    for name in ASSIGNMENTS
    for cell in cells(name)
]
STARTERS = {
    (name, *needed(load(name), cell.name)): (name, cell)
    for name in ASSIGNMENTS
    for cell in sorted(cells(name), key=lambda cell: cell.points)
}
"""Of the criteria that look at the same programs, the one with the most points."""


def planted():
    """Yield every mistake; `make test` tries the first one that costs a criterion."""
    tried = set()
    for name in ASSIGNMENTS:
        for mistake in mistakes(name):
            marks = [pytest.mark.full] if (name, mistake.criterion) in tried else []
            tried.add((name, mistake.criterion))
            yield pytest.param(name, mistake, id=f"{name}: {mistake.name}", marks=marks)


MISTAKES = [*planted()]
MISSED = [
    ("ring", "a collective"),
    ("ring", "whole vectors"),
    ("ddp", "sends everything in finish()"),
    ("resume", "the weights alone"),
    ("shard", "everybody remembers everything"),
    ("split", "all forwards first"),
    ("split", "one micro-batch at a time"),
    ("split", "one micro-batch at a time, but on rank 0"),
    ("launcher", "starts them, and waits for all"),
]


@pytest.mark.parametrize("assignment", ASSIGNMENTS)
def test_each_criterion_has_its_cell_and_the_lab_s_points_are_ten(assignment):
    graded = cells(assignment)
    assert {cell.name for cell in graded} == set(load(assignment).CRITERIA)
    assert sum(cell.points for cell in graded) == 10 or COURSE != LAB


@pytest.mark.parametrize(("assignment", "cell"), CRITERIA)
def test_a_criterion_has_visible_and_hidden_cases(assignment, cell):
    shown, hidden = split(assignment, cell)
    assert shown and hidden
    assert [*shown, *hidden] == cell.cases


@pytest.mark.parametrize(("assignment", "cell"), CRITERIA)
def test_the_solution_gets_full_marks(assignment, cell):
    _, hidden = split(assignment, cell)
    found = verdict(assignment, solution(assignment), cell.name, hidden[:1])
    assert found.state == "pass", (hidden[0], found)


@pytest.mark.full
@pytest.mark.parametrize(("assignment", "cell"), CRITERIA)
def test_the_solution_passes_every_case(assignment, cell):
    for case in cell.cases:
        found = verdict(assignment, solution(assignment), cell.name, [case])
        assert found.state == "pass", (case, found)


@pytest.mark.parametrize(
    ("assignment", "cell"),
    [
        pytest.param(
            *one.values,
            id=one.id,
            marks=[] if one.values in STARTERS.values() else [pytest.mark.full],
        )
        for one in CRITERIA
    ],
)
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
    (suspect,) = (c for c in cells(assignment) if c.name == mistake.criterion)
    found = verdict(assignment, answer, suspect.name, suspect.cases)
    says = str(found)
    if "the same" in says:  # of ranks that fail alike any may be the first
        says = re.sub(r"^fail: rank \d", "fail: rank 0", says)
    assert found.state != "pass" and says.startswith(mistake.says), found


@pytest.mark.skipif(COURSE != LAB, reason="of the lab's assignments")
def test_what_misses_the_idea_stays_under_four_points():
    """Which criteria these fail in, the tests beside this one say."""
    for name, mistake in MISSED:
        (found,) = (
            m for n, m in (p.values for p in MISTAKES) if (n, m.name) == (name, mistake)
        )
        lost = {found.criterion, *found.also}
        left = sum(cell.points for cell in cells(name) if cell.name not in lost)
        assert left < 4, (name, mistake, left)


@pytest.mark.full
@pytest.mark.parametrize(("assignment", "mistake"), MISTAKES)
def test_a_mistake_costs_no_other_criterion(assignment, mistake):
    answer = changed(assignment, *mistake.changes)
    for cell in cells(assignment):
        if cell.name in mistake.also:
            found = verdict(assignment, answer, cell.name, cell.cases)
            assert found.state == "fail", (cell.name, found)
    passed(
        assignment, answer, others(assignment, answer, mistake.criterion, *mistake.also)
    )


def passed(assignment: str, answer: dict[str, str], criteria: list[Criterion]) -> None:
    """See that `answer` passes the first case of each criterion."""
    for cell in criteria:
        found = verdict(assignment, answer, cell.name, cell.cases[:1])
        assert found.state == "pass", (cell.name, found)


def split(assignment: str, cell: Criterion) -> tuple[list[dict], list[dict]]:
    """Return the visible and the hidden cases of a criterion."""
    shown = visible(assignment).get(cell.name, [])
    return shown, [case for case in cell.cases if case not in shown]
