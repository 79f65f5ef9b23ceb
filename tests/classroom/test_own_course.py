"""A course in a folder of its own: its assignments, submissions and grades."""

import csv
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from classroom.engine import sandbox
from classroom.engine.assignment import LAB
from ddp_lab import ROOT
from ddp_lab.kit import warm_python

pytestmark = pytest.mark.sandbox

# An eleventh assignment, as somebody writes it from "Your own assignment".
SOLUTION = """    rank, world_size = dist.get_rank(), dist.get_world_size()
    pieces = [torch.empty_like(x) for _ in range(world_size)]
    pieces[rank].copy_(x)
    for step in range(world_size - 1):
        mine, next_one = (rank - step) % world_size, (rank - step - 1) % world_size
        works = [dist.isend(pieces[mine], (rank + 1) % world_size)]
        works.append(dist.irecv(pieces[next_one], (rank - 1) % world_size))
        for work in works:
            work.wait()
    return torch.cat(pieces)
"""
PROGRAM = f"""%%writefile build/classroom/gathered.py
import torch
import torch.distributed as dist


def all_gather(x):
    ### BEGIN SOLUTION
{SOLUTION}    ### END SOLUTION
"""
CHECK = """check(
    "right",
    dict(ranks=2, length=3),
    ### BEGIN HIDDEN TESTS
    dict(ranks=3, length=777),
    ### END HIDDEN TESTS
)"""
IMPORT = """from classroom.engine.check import make_check

check = make_check("gathered")"""
FILES = {
    "__init__.py": "",
    "criteria.py": """
import numpy as np

from classroom.assignments.beside.wired import wired
from classroom.engine.rig import compare_all
from classroom.engine.verdict import fail

PROGRAMS = {"program": "gathered.py"}
NEEDS = WORDS = {}


def right(rig, *, ranks, length):
    \"\"\"Every rank ends with all pieces, and sends n - 1 of them.\"\"\"
    pieces = rig.draw(0).normal(size=(ranks, length)).astype(np.float32)
    outcome, diary = wired(rig, [{"x": x} for x in pieces], calls=[])
    outcome.must_give("result")
    sent = sum(e["bytes"] for e in diary if e["what"] == "messages")
    if sent != (most := ranks * (ranks - 1) * 4 * length):
        return fail(f"{sent} bytes were sent, expected {most}")
    return compare_all(pieces.ravel(), outcome, "result")


CRITERIA = {"right": right}
""",
    "harness.py": """
import torch
from ranks import answer, give, inputs
from wire import wired

given = inputs()
with wired(given) as line:
    if line:
        give(result=answer("gathered.py").all_gather(torch.from_numpy(given["x"])))
""",
    "mistakes.diff": """
@@ right: one step
-    for step in range(world_size - 1):
+    for step in range(1):

@@ right: one step too many
-    for step in range(world_size - 1):
+    for step in range(world_size):
""",
}


# The judge's warm process is what is named first: a fork of ours.
GRADE = """
import runpy, sys
from classroom.engine import sandbox
sandbox.PYTHON = sys.argv.pop(1)
runpy.run_module("classroom.engine", run_name="__main__", alter_sys=True)
"""


def nbgrader(grade_id: str, **known) -> dict:
    known = {"grade": False, "solution": False, "locked": False, "task": False} | known
    return {"nbgrader": {"grade_id": grade_id, "schema_version": 3, **known}}


def source() -> nbformat.NotebookNode:
    graded = nbgrader("right", grade=True, locked=True, points=10)
    cells = [
        new_markdown_cell("# Gathered"),
        new_code_cell(IMPORT),
        new_code_cell(PROGRAM, metadata=nbgrader("program", solution=True)),
        new_code_cell(CHECK, metadata=graded),
    ]
    return new_notebook(cells=cells)


class Course:
    """A course in `folder`, with an assignment that the lab does not have."""

    def __init__(self, folder: Path):
        self.folder = folder
        place = folder / "assignments" / "gathered"
        place.mkdir(parents=True)
        for name, text in FILES.items():
            (place / name).write_text(text.lstrip())
        (folder / "source" / "gathered").mkdir(parents=True)
        nbformat.write(source(), folder / "source" / "gathered" / "gathered.ipynb")

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

    def hand_in(self, student: str, text: str | None) -> None:
        """Put a file where `nbgrader collect` would; None hands in a folder only."""
        place = self.folder / "submitted" / student / "gathered"
        place.mkdir(parents=True)
        if text is not None:
            (place / "gathered.ipynb").write_text(text)


@pytest.fixture
def course(tmp_path):
    return Course(tmp_path / "my course")


def tampered(path: Path) -> str:
    """Return the solution with changed tests, points and metadata, and a trap."""
    notebook, trap = source(), f"open({str(path)!r}, 'w').write('x')"
    notebook.cells[-1].source = f"{trap}\nprint('right: pass')"
    notebook.cells[-1].metadata["nbgrader"]["points"] = 100
    notebook.cells.insert(0, new_code_cell(trap))
    return nbformat.writes(notebook)


def left_with_0() -> str:
    notebook = source()
    head = PROGRAM.partition("\n")[0]
    text = "import os\n\n\ndef all_gather(x):\n    os._exit(0)\n"
    notebook.cells[2].source = f"{head}\n{text}"
    return nbformat.writes(notebook)


def times(course: Course) -> dict[str, int]:
    reports = (course.folder / "reports" / "gathered").glob("*.json")
    return {path.name: path.stat().st_mtime_ns for path in reports}


def test_from_release_to_grades_beside_the_lab(course, tmp_path):
    pytest.importorskip("nbgrader", reason="the lessons do without it")
    before = sorted(LAB.glob("*"))
    unsafe = ["--unsafe"] if sandbox.available() else []
    course.engine("release", "gathered")
    released = (course.folder / "release" / "gathered" / "gathered.ipynb").read_text()
    assert "| `right` | 10 | Every rank ends with all pieces, and sends" in released
    assert "### YOUR CODE" in released and "NotImplementedError" in released
    assert "SOLUTION" not in released and "HIDDEN" not in released
    assert "range(world_size - 1)" not in released and "777" not in released
    course.engine("handout", "gathered")
    with zipfile.ZipFile(course.folder / "handout/ddp-lab-students.zip") as archive:
        given = archive.namelist()
    assert "ddp-lab/assignments/gathered/gathered.ipynb" in given
    assert "ddp-lab/classroom/assignments/gathered/criteria.py" in given
    assert not any("mistakes" in path for path in given)

    course.hand_in("anna", nbformat.writes(source()))
    course.hand_in("bert", released)
    course.hand_in("carl", "no notebook")
    course.hand_in("dora", tampered(trap := tmp_path / "touched by a notebook"))
    course.hand_in("emil", None)
    course.hand_in("fay", left_with_0())
    grade = "-c", GRADE, warm_python(), "grade", "gathered", *unsafe
    rows = [row.split() for row in course.run(*grade).splitlines()[-6:]]
    assert [[row[0], *row[-2:]] for row in rows] == [
        ["anna", "10", "10"],
        ["bert", "0", "10"],
        ["carl", "0", "10"],
        ["dora", "10", "10"],
        ["emil", "0", "10"],
        ["fay", "0", "10"],
    ]
    assert not trap.exists()  # no cell of a submission has been executed

    before_that = times(course)
    course.run(*grade)  # everything is there already
    assert before_that and times(course) == before_that

    course.engine("feedback", "gathered")
    said = {
        student: page.read_text()
        for page in course.folder.glob("feedback/*/gathered/gathered.html")
        for student in [page.parts[-3]]
    }
    assert "right, 3 ranks, length 777: pass" in said["anna"]
    assert "length=777" not in said["anna"]  # a hidden case's source
    assert "raises NotImplementedError at gathered.py" in said["bert"]
    assert "is not a notebook" in said["carl"]
    assert "there is no gathered.ipynb" in said["emil"]
    assert "ended before it had given its result" in said["fay"]

    course.run("-m", "classroom.extras.grades")
    rows = list(csv.DictReader(open(course.folder / "grades.csv")))
    head = rows[0]["Student"].strip(), rows[0]["gathered"]
    assert head == ("Points Possible", "10")
    told = {row["SIS User ID"]: row["gathered"] for row in rows[1:]}
    assert told == dict(anna="10", bert="0", carl="0", dora="10", emil="0", fay="0")
    # The lab's assignments can be given in it, too; in the lab nothing has changed.
    course.engine("release", "ring")
    assert (course.folder / "release" / "ring" / "ring.ipynb").exists()
    assert sorted(LAB.glob("*")) == before


@pytest.mark.full
def test_its_assignment_is_tested_as_those_of_the_lab(course):
    tests = ["tests/classroom/test_solutions.py", "-k", "gathered", "-p", "no:xdist"]
    printed = course.run("-m", "pytest", "-q", "-p", "no:cacheprovider", *tests)
    # Points, cases, the solution twice, the starter, and two mistakes twice.
    assert "9 passed" in printed
