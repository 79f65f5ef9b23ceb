"""The course as an instructor runs it: release, grade, feedback, grades."""

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from course import as_notebook, solution

from classroom.engine import sandbox
from ddp_lab import ROOT

pytestmark = pytest.mark.sandbox

pytest.importorskip("nbgrader", reason="the lessons do without it")
from nbgrader.api import Gradebook  # noqa: E402

# Of each of these criteria a visible and a hidden case, to be quick, and its points.
FEW = {"right": (12, 999, 2), "any_length": (10, 2, 1)}
CHECK = """check(
    "{}",
    dict(ranks=3, length={}, seed=2),
    ### BEGIN HIDDEN TESTS
    dict(ranks=3, length={}, seed=12),
    ### END HIDDEN TESTS
)"""
MARK = "touched-by-a-notebook"


class Course:
    """A copy of the course in a folder of its own."""

    def __init__(self, folder: Path):
        self.folder, self.classroom = folder, folder / "classroom"
        shutil.copytree(ROOT / "ddp_lab", folder / "ddp_lab")
        shared = "engine", "extras", "assignments/beside"
        for name in (*shared, "assignments/ring", "source/ring"):
            shutil.copytree(ROOT / "classroom" / name, self.classroom / name)
        for name in ("__init__.py", "assignments/__init__.py", "nbgrader_config.py"):
            shutil.copy(ROOT / "classroom" / name, self.classroom / name)
        path = self.classroom / "source" / "ring" / "ring.ipynb"
        notebook = nbformat.read(path, as_version=4)
        for cell in list(notebook.cells):
            if cell.source.startswith("check("):
                name = cell.metadata.nbgrader.grade_id
                if name in FEW:
                    cell.source = CHECK.format(name, *FEW[name])
                    cell.metadata.nbgrader.points = FEW[name][-1]
                else:
                    notebook.cells.remove(cell)
        nbformat.write(notebook, path)

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess:
        """Run `python -m classroom.engine WORDS`, or what is an extra."""
        extras = "grade", "grades", "slurm", "similar"
        part = "extras" if words[0] in extras else "engine"
        command = [sys.executable, "-m", f"classroom.{part}", *words]
        env = {**os.environ, "PYTHONPATH": str(self.folder), **env}
        return subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True
        )

    def hand_in(self, student: str, data: str | bytes | None) -> None:
        """Put a file where `nbgrader collect` would; None hands in a folder only."""
        folder = self.classroom / "submitted" / student / "ring"
        folder.mkdir(parents=True)
        if data is not None:
            data = data if isinstance(data, bytes) else data.encode()
            (folder / "ring.ipynb").write_bytes(data)

    def feedback(self, student: str) -> str:
        path = self.classroom / "feedback" / student / "ring" / "ring.html"
        return path.read_text()


def tampered(path: Path) -> str:
    """Return the solution with changed tests, points and metadata, and a trap."""
    notebook = as_notebook("ring", solution("ring"))
    trap = f"open({str(path)!r}, 'w').write('x')"
    for cell in notebook.cells:
        if cell.source.startswith("check("):
            cell.source = f"{trap}\nprint('right: pass')"
            cell.metadata.nbgrader.points = 100
    notebook.cells.insert(0, nbformat.v4.new_code_cell(trap))
    return nbformat.writes(notebook)


@pytest.mark.skipif(sandbox.available() is not None, reason="there is no sandbox here")
def test_from_release_to_grades(tmp_path):
    course, trap = Course(tmp_path), tmp_path / MARK
    done = course.run("release", "ring")
    assert done.returncode == 0, done.stderr
    released = (course.classroom / "release" / "ring" / "ring.ipynb").read_text()
    assert "| `right` | 2 | Every rank ends with the sum of all vectors. |" in released
    assert "### YOUR CODE" in released and "NotImplementedError" in released
    assert "SOLUTION" not in released and "HIDDEN" not in released
    assert "length=999" not in released and "dist.irecv" not in released

    course.hand_in("anna", nbformat.writes(as_notebook("ring", solution("ring"))))
    course.hand_in("bert", released)
    course.hand_in("carl", b"\xffno notebook")
    course.hand_in("dora", tampered(trap))
    course.hand_in("emil", None)
    exits = {"ring.py": "import os\n\n\ndef all_reduce(x):\n    os._exit(0)\n"}
    course.hand_in("fay", nbformat.writes(as_notebook("ring", exits)))

    done = course.run("grade", "ring")
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[-6:]]
    assert [[row[0], *row[-2:]] for row in rows] == [
        ["anna", "3", "3"],
        ["bert", "0", "3"],
        ["carl", "0", "3"],
        ["dora", "3", "3"],
        ["emil", "0", "3"],
        ["fay", "0", "3"],
    ]
    assert not trap.exists()  # no cell of a submission has been executed

    times = _times(course)
    done = course.run("grade", "ring")  # everything is there already
    assert done.returncode == 0 and _times(course) == times

    assert course.run("feedback", "ring").returncode == 0
    assert "right, 3 ranks, 999 numbers: pass" in course.feedback("anna")
    assert "seed=12" not in course.feedback("anna")  # a hidden case's source
    assert "raises NotImplementedError at ring.py" in course.feedback("bert")
    assert "is not a notebook" in course.feedback("carl")
    assert "there is no ring.ipynb" in course.feedback("emil")
    assert "ended before it had given its result" in course.feedback("fay")

    assert course.run("grades").returncode == 0
    rows = list(csv.DictReader(open(course.classroom / "grades.csv")))
    assert (rows[0]["Student"].strip(), rows[0]["ring"]) == ("Points Possible", "3")
    assert [(row["SIS User ID"], row["ring"]) for row in rows[1:4]] == [
        ("anna", "3"),
        ("bert", "0"),
        ("carl", "0"),
    ]


def _times(course: Course) -> dict[str, int]:
    reports = (course.classroom / "reports" / "ring").glob("*.json")
    return {path.name: path.stat().st_mtime_ns for path in reports}


def test_what_is_blocked_is_neither_zero_nor_pass(tmp_path):
    course = Course(tmp_path)
    module = course.classroom / "assignments" / "ring" / "criteria.py"
    text = module.read_text() + "\n\ndef _blocked(rig, **case):\n"
    text += "    return Verdict('blocked', 'needs 2 GPUs, here is none')\n\n\n"
    text += "CRITERIA['any_length'] = _blocked\n"
    text += "CRITERIA['right'] = lambda rig, **case: fail('no')\n"
    module.write_text(text)
    course.hand_in("anna", nbformat.writes(as_notebook("ring", solution("ring"))))
    done = course.run("grade", "ring", "--unsafe")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split() == ["anna", "FAIL", "blocked", "0", "2"]
    book = Gradebook(f"sqlite:///{course.classroom}/gradebook.db")
    grade = book.find_grade("any_length", "ring", "ring", "anna")
    assert (grade.auto_score, grade.needs_manual_grade) == (None, True)
    book.close()
    assert course.run("feedback", "ring").returncode == 0
    assert "blocked: needs 2 GPUs, here is none" in course.feedback("anna")
    assert course.run("grades").returncode == 0
    _, row = csv.DictReader(open(course.classroom / "grades.csv"))
    assert row["ring"] == ""
    (row,) = csv.DictReader(open(course.classroom / "grades-details.csv"))
    assert (row["score"], row["max"], row["blocked"]) == ("0", "2", "any_length")


def test_without_a_sandbox_it_refuses(tmp_path):
    course = Course(tmp_path)
    course.hand_in("anna", json.dumps({}))
    done = course.run("grade", "ring", PATH="/nowhere")
    assert done.returncode == 1
    assert done.stderr.startswith(f"{sandbox.REFUSAL}\ninstall it: ")
    done = course.run("grade", "ring", "--only", "rihgt")
    assert done.stderr.startswith("ring has no criterion rihgt: right, ")
    # Who is refused has changed nothing.
    assert not [*course.classroom.glob("release"), *course.classroom.glob("*.db")]
