"""Points, criteria and minutes are the same wherever a student or a teacher reads."""

import re

import nbformat
import pytest

from classroom.engine.assignment import LAB, criteria, home, load, names, notebook

pytestmark = pytest.mark.sandbox

HEAD = re.compile(r"\|---\|\n\| (?P<minutes>[^|]+) \| \d \| [^|]+ \| (?P<before>.+) \|")
NUMBERS = "no one two three four five six seven eight nine ten eleven twelve".split()
assignments = pytest.mark.parametrize("name", [n for n in names() if home(n) == LAB])


def prose(name: str) -> list[str]:
    """Return the cells of text of an assignment's notebook."""
    cells = nbformat.read(notebook("source", name), as_version=4).cells
    return [cell.source for cell in cells if cell.cell_type == "markdown"]


@assignments
def test_the_heading_of_a_criterion_says_its_points(name):
    told = re.findall(r"^### .* · ([\d.]+) points?$", "\n".join(prose(name)), re.M)
    asked = [cell.points for cell in criteria(name)]
    if [float(points) for points in told] == asked:
        return
    # What is worth less than a point may have one sentence for all of its kind.
    assert [float(points) for points in told] == [p for p in asked if p >= 1]
    assert {points for points in asked if points < 1} <= {0.5}
    assert any("Half a point each" in text for text in prose(name))


@assignments
def test_the_notebook_states_its_total_and_how_many_criteria(name):
    cells, text = criteria(name), "\n".join(prose(name))
    total = sum(cell.points for cell in cells)
    assert re.search(rf"\b({total:g}|{NUMBERS[int(total)]}) points\b", text, re.I)
    for count in re.findall(r"\b(\w+) criteria\b", text):
        if count.lower() in NUMBERS:
            assert NUMBERS.index(count.lower()) == len(cells)
    assert len(cells) == len(load(name).CRITERIA)


@assignments
def test_the_readme_tells_the_same_minutes_and_lessons(name):
    head = HEAD.search(prose(name)[0])
    (row,) = re.findall(
        rf"^\| \d+ · .*\({re.escape(f'source/{name}/{name}.ipynb')}\) \| (.*) \|$",
        (LAB / "README.md").read_text(),
        re.M,
    )
    lessons, minutes = row.split(" | ")
    assert minutes == head["minutes"]
    assert lessons == ", ".join(re.findall(r"\bA?\d+", head["before"]))
