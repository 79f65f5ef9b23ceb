"""A learner's copies: blank, never overwritten, and no matter for git."""

import json
import shutil
import subprocess

import pytest

pytest.importorskip("nbformat", reason="tools.work needs Jupyter")

from ddp_lab import ROOT, workplace  # noqa: E402
from tools import notebooks, work  # noqa: E402

LESSON = "01_point_to_point.ipynb"
PROGRAM = "ddp_lab/p2p/ring.py"


@pytest.fixture
def mine(tmp_path):
    """Return the folder with a learner's copies."""
    folder = tmp_path / "work"
    assert work.make(folder) == []
    return folder


def test_the_copies_have_no_outputs_and_else_are_the_lessons(mine):
    for path in notebooks.lessons():
        lesson = notebooks.read(path)
        copy = notebooks.read(mine / "notebooks" / path.name)
        assert [cell.source for cell in copy.cells] == [c.source for c in lesson.cells]
        code = [cell for cell in copy.cells if cell.cell_type == "code"]
        assert not any(cell.outputs or cell.execution_count for cell in code)
        assert copy.metadata.kernelspec == lesson.metadata.kernelspec
    assert (mine / PROGRAM).read_bytes() == (ROOT / PROGRAM).read_bytes()


def test_what_a_learner_has_written_stays(mine):
    for name in (f"notebooks/{LESSON}", PROGRAM):
        (mine / name).write_text((mine / name).read_text() + " ")
    kept = {path: path.read_bytes() for path in mine.rglob("*.[ip]*") if path.is_file()}
    assert work.make(mine) == []
    assert {path: path.read_bytes() for path in kept} == kept


def test_a_newer_lesson_is_told_and_not_imposed(mine):
    copy = mine / "notebooks" / LESSON
    old = json.loads(copy.read_text())
    old["metadata"][work.SOURCE] = "another"
    copy.write_text(json.dumps(old))
    (said,) = work.make(mine)
    assert said.startswith("01_point_to_point has a newer version; rename work/noteb")
    assert json.loads(copy.read_text()) == old
    copy.rename(copy.with_name("mine.ipynb"))
    assert work.make(mine) == [] and copy.exists()


def test_the_assignments_that_are_handed_out_are_copied_too(tmp_path, monkeypatch):
    handed_out = tmp_path / "assignments" / "ring" / "ring.ipynb"
    handed_out.parent.mkdir(parents=True)
    shutil.copy(ROOT / "notebooks" / LESSON, handed_out)
    monkeypatch.setattr(work, "ASSIGNMENTS", tmp_path / "assignments")
    folder = tmp_path / "work"
    assert work.make(folder) == []
    copy = folder / "assignments" / "ring" / "ring.ipynb"
    copy.write_text(copy.read_text() + " ")  # what a student has done stays
    assert work.make(folder) == [] and copy.read_text().endswith(" ")
    shutil.copy(ROOT / "notebooks" / "00_start_here.ipynb", handed_out)
    (said,) = work.make(folder)
    assert said.startswith("ring has a newer version; rename work/assignments/ring/r")
    assert workplace(copy.parent) == folder


def test_a_copy_works_in_the_learners_folder_and_a_lesson_in_the_root(mine):
    assert workplace(mine / "notebooks") == mine
    assert workplace(ROOT / "notebooks") == workplace(ROOT) == ROOT
    assert workplace(mine.parent) == ROOT


@pytest.mark.processes
def test_a_pull_has_no_conflict_with_what_a_learner_did(tmp_path):
    def git(*words, folder):
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        command = ["git", *who, *words]
        return subprocess.run(command, cwd=folder, check=True, capture_output=True)

    course, learner = tmp_path / "course", tmp_path / "learner"
    (course / "ddp_lab" / "p2p").mkdir(parents=True)
    shutil.copy(ROOT / ".gitignore", course)
    shutil.copy(ROOT / PROGRAM, course / PROGRAM)
    git("init", "-q", folder=course)
    git("add", ".", folder=course)
    git("commit", "-qm", "first", folder=course)
    git("clone", "-q", str(course), str(learner), folder=tmp_path)
    (learner / "work" / "ddp_lab" / "p2p").mkdir(parents=True)
    (learner / "work" / PROGRAM).write_text("print('my own ring')\n")
    (course / PROGRAM).write_text("print('a new edition')\n")
    git("commit", "-qam", "second", folder=course)
    git("pull", "-q", "--ff-only", folder=learner)
    assert (learner / PROGRAM).read_text() == "print('a new edition')\n"
    assert (learner / "work" / PROGRAM).read_text() == "print('my own ring')\n"
    assert git("status", "--porcelain", folder=learner).stdout == b""
