"""A course in a folder of its own: its assignments, submissions and grades."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from classroom.engine import sandbox
from classroom.engine.assignment import LAB
from ddp_lab import ROOT

pytestmark = pytest.mark.sandbox

SOLUTION = "    return [2 * number for number in numbers]\n"
PROGRAM = f"""%%writefile build/classroom/doubled.py
def doubled(numbers):
    ### BEGIN SOLUTION
{SOLUTION}    ### END SOLUTION
"""
CHECK = """check(
    "right",
    dict(ranks=2, length=3),
    ### BEGIN HIDDEN TESTS
    dict(ranks=2, length=777),
    ### END HIDDEN TESTS
)"""
FILES = {
    "__init__.py": """
from classroom.assignments.doubled import criteria
from classroom.engine.check import make_check

check = make_check(criteria)
""",
    "criteria.py": """
from classroom.engine.verdict import PASS, fail

PROGRAMS = {"program": "doubled.py"}
NEEDS = WORDS = {}


def right(rig, *, ranks, length):
    outcome = rig.run(ranks, {"numbers": [*range(length)]})
    if problem := outcome.problem("result"):
        return problem
    expected = [*range(0, 2 * length, 2)]
    right = all(given["result"] == expected for given in outcome.outputs)
    return PASS if right else fail("not doubled")


CRITERIA = {"right": right}
""",
    "harness.py": """
from ranks import answer, give, inputs, process_group

given = inputs()
with process_group():
    give(result=answer("doubled.py").doubled(given["numbers"]))
""",
    "mistakes.py": """
from classroom.engine.assignment import Mistake

MISTAKES = [Mistake("thrice", "right", [("2 * number", "3 * number")])]
""",
}


def nbgrader(grade_id: str, **known) -> dict:
    known = {"grade": False, "solution": False, "locked": False, "task": False} | known
    return {"nbgrader": {"grade_id": grade_id, "schema_version": 3, **known}}


def source() -> nbformat.NotebookNode:
    graded = nbgrader("right", grade=True, locked=True, points=10)
    cells = [
        new_markdown_cell("# Doubled"),
        new_code_cell("from classroom.assignments.doubled import check"),
        new_code_cell(PROGRAM, metadata=nbgrader("program", solution=True)),
        new_code_cell(CHECK, metadata=graded),
    ]
    return new_notebook(cells=cells)


class Course:
    """A course in `folder`, with an assignment that the lab does not have."""

    def __init__(self, folder: Path):
        self.folder = folder
        place = folder / "assignments" / "doubled"
        place.mkdir(parents=True)
        for name, text in FILES.items():
            (place / name).write_text(text.lstrip())
        (folder / "source" / "doubled").mkdir(parents=True)
        nbformat.write(source(), folder / "source" / "doubled" / "doubled.ipynb")

    def run(self, *words: str) -> str:
        """Run `python WORDS` for this course; return what it prints."""
        env = {**os.environ, "DDP_LAB_COURSE": str(self.folder)}
        done = subprocess.run(
            [sys.executable, *words], cwd=ROOT, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def engine(self, *words: str) -> str:
        return self.run("-m", "classroom.engine", *words)

    def hand_in(self, student: str, text: str) -> None:
        place = self.folder / "submitted" / student / "doubled"
        place.mkdir(parents=True)
        (place / "doubled.ipynb").write_text(text)


@pytest.fixture
def course(tmp_path):
    return Course(tmp_path / "my course")


def test_from_release_to_grades_beside_the_lab(course):
    pytest.importorskip("nbgrader", reason="the lessons do without it")
    before = sorted(LAB.glob("*"))
    unsafe = ["--unsafe"] if sandbox.available() else []
    course.engine("release", "doubled")
    released = (course.folder / "release" / "doubled" / "doubled.ipynb").read_text()
    assert "NotImplementedError" in released
    assert "2 * number" not in released and "777" not in released
    told = "from classroom.engine import handout\n"
    told += "print(*handout.contents(['doubled']), sep='\\n')"
    given = course.run("-c", told).splitlines()
    assert "classroom/assignments/doubled/criteria.py" in given
    assert "classroom/assignments/doubled/mistakes.py" not in given

    course.hand_in("anna", nbformat.writes(source()))
    course.hand_in("bert", released)
    printed = course.engine("grade", "doubled", *unsafe).splitlines()
    assert [row.split() for row in printed[-2:]] == [
        ["anna", "pass", "10", "10"],
        ["bert", "not", "yet", "0", "10"],
    ]
    course.engine("feedback", "doubled")
    page = course.folder / "feedback" / "anna" / "doubled" / "doubled.html"
    assert "right, 2 ranks, length 777: pass" in page.read_text()
    course.engine("grades")
    rows = csv.DictReader(open(course.folder / "grades.csv"))
    told = {row["SIS User ID"]: row["doubled"] for row in rows}
    assert (told["anna"], told["bert"]) == ("10", "0")
    # The lab's assignments can be given in it, too; in the lab nothing has changed.
    course.engine("release", "ring")
    assert (course.folder / "release" / "ring" / "ring.ipynb").exists()
    assert sorted(LAB.glob("*")) == before


@pytest.mark.full
def test_its_assignment_is_tested_as_those_of_the_lab(course):
    tests = ["tests/classroom/test_solutions.py", "-k", "doubled", "-p", "no:xdist"]
    printed = course.run("-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
    # Points, cases, the solution twice, the starter, and a mistake twice.
    assert "7 passed" in printed
