"""Where things are: an engine that knows no assignment, and a folder for each."""

import ast
from pathlib import Path

import pytest

from classroom.engine.assignment import LAB, names

pytestmark = pytest.mark.sandbox

ENGINE = sorted((LAB / "engine").glob("*.py"))
FOLDERS = sorted(path.parent.name for path in LAB.glob("assignments/*/__init__.py"))
# These run in the sandbox, where there is nothing else of the course.
ALONE = {"ranks.py": {"values"}, "values.py": set(), "runner.py": {"ddp_lab"}}
ALONE["lives.py"] = set()


def imported(path: Path) -> set[str]:
    """Return the full names of the modules that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def ours(path: Path) -> set[str]:
    """Return what a file imports of this repository."""
    first = ("classroom", "ddp_lab", "lives", "ranks", "values")
    return {name for name in imported(path) if name.split(".")[0] in first}


@pytest.mark.parametrize("path", ENGINE, ids=lambda path: path.name)
def test_the_engine_names_no_assignment(path):
    assert not any(name.startswith("classroom.assignments") for name in ours(path))
    if path.name in ALONE:
        assert {name.split(".")[0] for name in ours(path)} == ALONE[path.name]


def test_every_assignment_has_a_folder_and_a_notebook():
    assert names() == FOLDERS


@pytest.mark.parametrize("name", FOLDERS)
def test_an_assignment_is_whole_and_knows_no_other(name):
    folder = LAB / "assignments" / name
    found = {path.name: ours(path) for path in folder.glob("*.py")}
    assert found.keys() >= {"__init__.py", "criteria.py", "harness.py", "mistakes.py"}
    known = f"classroom.assignments.{name}", "classroom.engine."
    assert all(
        module.startswith(known)
        for file in found.keys() - {"harness.py"}
        for module in found[file]
    )
    # It runs where there is nothing else of the course.
    known = {module.split(".")[0] for module in found["harness.py"]}
    assert {"ranks"} <= known <= {"ranks", "lives"}
