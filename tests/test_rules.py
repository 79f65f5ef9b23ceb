"""The rules that every program keeps, so that a reader may rely on them."""

import ast
import re
import sys

import pytest
from conftest import PROGRAMS, name_of

from ddp_lab import ROOT

STANDARD_LIBRARY = set(sys.stdlib_module_names)
# Saving and loading explain what can go wrong with a file, which takes some lines.
LENGTH = {
    "cifar10/fast.py": 220,
    "cifar10/resnet.py": 220,
    "checkpoint/dcp.py": 145,
    "checkpoint/resume.py": 140,
}
# What every program ends with begins below this line.
RULE = "# --- the same in every program"
# Of a program that starts its ranks itself, before the guard.
REIMPORT = "# Each rank imports this file anew, and must not spawn again.\n"
MOST_LINES, LONGEST_FUNCTION, LONGEST_MAIN = 130, 25, 40

programs = pytest.mark.parametrize("path", PROGRAMS, ids=name_of)


def functions(path) -> dict[str, ast.FunctionDef]:
    tree = ast.parse(path.read_text())
    return {n.name: n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}


def length(function: ast.FunctionDef) -> int:
    return function.end_lineno - function.lineno + 1


def test_the_end_is_the_same_everywhere():
    ends = {name_of(p): p.read_text().partition(RULE)[2] for p in PROGRAMS}
    reference = ends["p2p/ring.py"]
    assert "def process_group():" in reference
    wrong = [n for n, end in ends.items() if end.replace(REIMPORT, "") != reference]
    assert wrong == []


@programs
def test_a_program_is_complete_alone(path):
    allowed = {"torch", "torchvision"}
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in getattr(node, "names", [])]
        if isinstance(node, ast.ImportFrom):
            names = [node.module]
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name in names:
                top = name.split(".")[0]
                assert top in allowed or top in STANDARD_LIBRARY, f"imports {name}"


@programs
def test_the_program_joins_and_leaves_by_the_context_manager(path):
    lesson = path.read_text().partition(RULE)[0]
    assert lesson.count("    with process_group() as (rank, ") == 1
    assert "init_process_group" not in lesson and "destroy_process" not in lesson


@programs
def test_main_is_recorded_and_guarded(path):
    text = path.read_text()
    assert "@record\ndef main(" in text
    assert text.rstrip().splitlines()[-2:-1] == ['if __name__ == "__main__":']


@programs
def test_the_budget_is_kept(path):
    text = path.read_text()
    assert len(text.splitlines()) <= LENGTH.get(name_of(path), MOST_LINES)
    for name, function in functions(path).items():
        limit = LONGEST_MAIN if name == "main" else LONGEST_FUNCTION
        assert length(function) <= limit, name


@programs
def test_the_docstring_is_the_usage_page(path):
    doc = ast.get_docstring(ast.parse(path.read_text()))
    assert re.search(rf"^    .*ddp_lab/{name_of(path)}", doc, re.MULTILINE), (
        "the command"
    )
    notebook = re.search(r"Written by (notebooks/\w+\.ipynb)\.", doc)
    assert notebook and (ROOT / notebook[1]).exists()


@programs
def test_the_name_shadows_no_module(path):
    # A rank's sys.path begins with its script's folder.
    assert path.stem not in STANDARD_LIBRARY | {"torch", "torchvision", "numpy"}


@programs
def test_every_print_is_flushed(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "print":
            assert any(word.arg == "flush" for word in node.keywords), node.lineno
