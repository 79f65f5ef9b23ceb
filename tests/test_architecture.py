"""The house: which room may know which, and nothing in the kit that is a lesson's."""

import ast
import re
from pathlib import Path

import pytest
from architecture import circle, imported, modules, strangers, twice
from conftest import KIT, PROGRAMS

import whichrank
from ddp_lab import ROOT

# What each room may import of the others.
KNOWS = {
    "words": set(),
    "draw": {"draw"},
    "played": {"played"},
    "launch": {"played"},
    "cell": {"cell", "draw", "launch", "words"},
}
OUTSIDE = ("figs", "bench", "tools", "classroom", "tests")
MODULES = modules(KIT, ROOT)
COURSE = {
    name: path
    for folder in ("ddp_lab/kit", "figs", "bench", "tools", "classroom")
    for name, path in modules(ROOT / folder, ROOT).items()
}


def test_each_room_knows_only_what_it_may():
    assert strangers("ddp_lab.kit", MODULES, KNOWS) == []
    outside = [
        f"{module} imports {name}"
        for module, path in MODULES.items()
        for name in imported(path)
        if name.startswith(OUTSIDE)
    ]
    assert outside == []


def offered(*rooms: dict[str, str]) -> set[str]:
    """Return the names of a part of the face."""
    return {name for each in rooms for names in each.values() for name in names.split()}


def test_the_course_uses_whichrank_by_its_face():
    """As a stranger would: what the package itself offers, and no room of it."""
    face = whichrank.FOR_USERS, whichrank.FOR_PLACES, whichrank.MODULES
    known = {
        name for rooms in face for names in rooms.values() for name in names.split()
    }
    deep = [
        f"{module} imports {name}"
        for module, path in COURSE.items()
        for name in imported(path)
        if name.startswith("whichrank.")
        and name.removeprefix("whichrank.") not in known
    ]
    assert deep == []


def test_what_the_face_offers_to_places_is_used():
    used = {name for path in COURSE.values() for name in imported(path)}
    rooms = whichrank.FOR_PLACES, whichrank.MODULES
    offered = {
        name for each in rooms for names in each.values() for name in names.split()
    }
    assert {name for name in offered if f"whichrank.{name}" not in used} == set()


def test_what_a_cell_makes_is_computed_without_a_notebook():
    """compose.py, and all that it imports, knows neither IPython nor pictures."""
    found, todo = set(), ["ddp_lab.kit.cell.compose"]
    while todo:
        module = todo.pop()
        found.add(module)
        names = [*imported(MODULES[module])] if module in MODULES else []
        todo += [name for name in names if name not in found]
    assert "ddp_lab.kit.cell.changes" in found
    assert not [n for n in found if n.startswith(("IPython", "ddp_lab.kit.draw"))]


def test_no_name_stands_for_two_things():
    """There were two Jobs, two agents, two keepers and two nodes.py."""
    assert twice(MODULES) == {}


def test_nothing_imports_in_a_circle():
    assert circle(COURSE) == []


@pytest.mark.parametrize("name", MODULES)
def test_the_kit_names_no_lesson(name):
    text = MODULES[name].read_text()
    lessons = [notebook.stem for notebook in (ROOT / "notebooks").glob("*.ipynb")]
    programs = [f"{p.parent.name}/{p.name}" for p in PROGRAMS]
    assert [each for each in (*lessons, *programs) if each in text] == []
    assert not re.search(r"\blesson \d", text)


def test_modules_that_the_kit_mentions_are_there():
    """Docstrings named modules that had moved."""
    there = {path.name for path in MODULES.values()}
    there |= {path.name for path in Path(whichrank.__file__).parent.rglob("*.py")}
    for name, path in MODULES.items():
        named = re.findall(r"[Ss]ee (?:\w+/)?(\w+\.py)", path.read_text())
        assert {*named} <= there, name


def test_a_constant_is_the_same_number_everywhere():
    """PATIENCE was seven numbers once."""
    numbers: dict[str, dict[str, str]] = {}
    for name, path in COURSE.items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                if type(node.value.value) in (int, float):
                    for target in node.targets:
                        constant, value = ast.unparse(target), ast.unparse(node.value)
                        numbers.setdefault(constant, {})[name] = value
    twice = {n: by for n, by in numbers.items() if len(set(by.values())) > 1}
    assert twice == {}
