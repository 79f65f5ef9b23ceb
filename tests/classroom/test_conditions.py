"""Students are told, in their notebook, what each criterion asks for."""

import re

import nbformat
import pytest
from course import cells, starter

from classroom.engine.assignment import load, names, notebook

pytest.importorskip("nbgrader", reason="the lessons do without it")

from classroom.engine.preprocessors import Conditions, condition  # noqa: E402

pytestmark = pytest.mark.sandbox

CRITERIA = [(name, cell.name) for name in names() for cell in cells(name)]
ROW = re.compile(r"^\| `(\w+)` \| ([\d.]+) \| (.*) \|$", re.M)


def released(name: str) -> list[nbformat.NotebookNode]:
    """Return the cells of a notebook with its table of conditions."""
    nb = nbformat.read(notebook("source", name), as_version=4)
    resources = {"nbgrader": {"assignment": name}}
    return Conditions().preprocess(nb, resources)[0].cells


@pytest.mark.parametrize("name", names())
def test_the_table_names_every_criterion_with_its_points(name):
    found = released(name)
    (number,) = [n for n, cell in enumerate(found) if cell.id == "conditions"]
    assert found[number - 1].source.startswith("## Goal")
    rows = [(n, float(points)) for n, points, _ in ROW.findall(found[number].source)]
    assert rows == [(cell.name, cell.points) for cell in cells(name)]
    assert f"| | {sum(points for _, points in rows):g} | |" in found[number].source


@pytest.mark.parametrize(("name", "criterion"), CRITERIA)
def test_a_condition_is_a_sentence_for_students(name, criterion):
    text = condition(load(name).CRITERIA[criterion])
    assert text.endswith(".") and len(text.split()) > 4
    # Neither a constant of ours nor a parameter of the cases means anything to them.
    assert not re.search(r"\b[A-Z]{2,}_[A-Z]+\b", text)
    theirs = set(re.findall(r"\w+", "".join(starter(name).values())))
    assert theirs.issuperset(re.findall(r"`(\w+)`", text))


def test_a_condition_is_the_first_paragraph_and_fits_into_a_table():
    def judge():
        """At most |x| on
        every rank.

        Args: none that a student knows.
        """

    assert condition(judge) == "At most \\|x\\| on every rank."


def test_without_goals_the_table_comes_second():
    nb = nbformat.read(notebook("source", "ring"), as_version=4)
    nb.cells = [cell for cell in nb.cells if not cell.source.startswith("## Goal")]
    resources = {"nbgrader": {"assignment": "ring"}}
    assert Conditions().preprocess(nb, resources)[0].cells[1].id == "conditions"
