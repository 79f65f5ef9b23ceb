"""Where things are: an engine that knows no assignment, and a folder for each."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from classroom.engine import judge, runner
from classroom.engine.assignment import LAB, mistakes, names
from classroom.engine.modules import imported
from classroom.engine.rig import BESIDE

pytestmark = pytest.mark.sandbox

ENGINE = sorted((LAB / "engine").glob("*.py"))
FOLDERS = sorted(
    path.parent.name
    for path in LAB.glob("assignments/*/__init__.py")
    if path.parent != BESIDE
)
SHARED = {"averaging", "wire"}  # what harnesses find beside them
# These run in the sandbox, where there is nothing else of the course.
ALONE = {"ranks.py": {"values"}, "values.py": set(), "runner.py": {"ddp_lab"}}


def ours(path: Path) -> set[str]:
    """Return what a file imports of this repository."""
    first = ("classroom", "ddp_lab", "ranks", "values", *SHARED)
    found = imported(path.read_text())
    return {name for name in found if name.split(".")[0] in first}


@pytest.mark.parametrize("path", ENGINE, ids=lambda path: path.name)
def test_the_engine_names_no_assignment(path):
    others = "classroom.assignments", "classroom.extras"
    assert not any(name.startswith(others) for name in ours(path))
    if path.name in ALONE:
        assert {name.split(".")[0] for name in ours(path)} == ALONE[path.name]


def test_every_assignment_has_a_folder_and_a_notebook():
    assert names() == FOLDERS


@pytest.mark.parametrize("name", FOLDERS)
def test_an_assignment_is_whole_and_knows_no_other(name):
    folder = LAB / "assignments" / name
    found = {path.name: ours(path) for path in folder.glob("*.py")}
    assert found.keys() >= {"__init__.py", "criteria.py", "harness.py"}
    assert mistakes(name)
    known = f"classroom.assignments.{name}", "classroom.engine."
    known += ("classroom.assignments.beside.", "ddp_lab.gpt")  # the lessons' model
    assert all(
        module.startswith(known)
        for file in found.keys() - {"harness.py"}
        for module in found[file]
    )
    of_the_lab = [m for m in found["harness.py"] if m.startswith("ddp_lab")]
    assert all(module.startswith("ddp_lab.gpt") for module in of_the_lab)
    # It runs where there is nothing else of the course.
    known = {m.split(".")[0] for m in found["harness.py"]}
    assert known & {"ranks", *SHARED} and known <= {"ranks", "ddp_lab", *SHARED}


@pytest.mark.parametrize("name", sorted(SHARED))
def test_what_harnesses_share_runs_where_there_is_nothing_else(name):
    known = {module.split(".")[0] for module in ours(BESIDE / f"{name}.py")}
    assert known <= {"ranks", *SHARED}


def test_a_report_shows_no_line_of_the_check(tmp_path):
    (tmp_path / "anything.py").touch()  # whatever an assignment calls its files
    frames = f"\n  at {tmp_path}/anything.py:7\n  at {tmp_path}/answer/mine.py:3"
    text = f"rank 0: KeyError{frames}; rank 1 waits in {tmp_path}/anything.py:9"
    told = "rank 0: KeyError\n  at mine.py:3; rank 1 waits in the check, outside"
    assert runner._tidy(text, tmp_path) == f"{told} your program"


# --- what a report depends on ---

LOADED = """
import json, sys
from classroom.engine import judge, zygote
from classroom.engine.assignment import load
load("resume")
files = [getattr(module, "__file__", None) or "" for module in sys.modules.values()]
print(json.dumps([file for file in files if "/classroom/" in file]))
"""


def test_a_report_depends_on_all_that_judges_and_on_nothing_else():
    words = [sys.executable, "-c", LOADED]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    engine = LAB / "engine"
    # These run beside the programs, and are no modules of the judge.
    inside = [engine / name for name in ("ranks.py", "values.py")]
    inside.append(LAB / "assignments" / "resume" / "harness.py")
    loaded = {*map(Path, json.loads(done.stdout))}
    assert {*judge.judging("resume")} == loaded | {*inside}
    assert not any(path.parent == LAB / "extras" for path in loaded)


def test_another_text_of_what_judges_is_another_key(monkeypatch, tmp_path):
    def key(text: str) -> str:
        (tmp_path / "criteria.py").write_text(text)
        return judge._key("ring", {}, "", [])

    monkeypatch.setattr(judge, "judging", lambda name: [tmp_path / "criteria.py"])
    assert key("x = 1") == key("x = 1") != key("x = 2")
