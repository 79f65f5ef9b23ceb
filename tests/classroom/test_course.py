"""The lab's own course as an instructor runs it; test_own_course.py has all steps."""

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
        """Run `python -m classroom.engine WORDS`, or of `make grades`."""
        part = "extras.grades" if words == ("grades",) else "engine"
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
    row, why = done.stdout.splitlines()[-2:]
    assert row.split() == ["anna", "FAIL", "blocked", "0", "2"]
    assert why == "blocked (1): needs 2 GPUs, here is none"
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
