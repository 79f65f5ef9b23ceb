"""The house: which room may know which, and nothing in the kit that is a lesson's."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import KIT, PROGRAMS

from ddp_lab import ROOT
from ddp_lab.kit.record import names

# What each room may import of the others. `draw` takes types only, see below.
KNOWS = {
    "record": {"record"},
    "explain": {"explain", "record"},
    "draw": {"draw", "explain", "record"},
    "run": {"run", "explain", "record"},
    "played": {"played", "run", "record"},
    "slurm": {"slurm", "run", "record"},
    "launch": {"run", "played", "slurm"},
    "examine": {"examine", "record"},
    "cell": {"cell", "draw", "examine", "launch", "run", "explain", "record"},
    "terminal": {"terminal", "examine", "launch", "run", "explain", "record"},
}
ROOMS = {*KNOWS}
OUTSIDE = {"figs", "bench", "tools", "classroom", "tests"}
MODULES = sorted(KIT.rglob("*.py"))


def imported(path: Path) -> Iterator[str]:
    """Yield the full names of what a module of the house imports from the house."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            assert not node.level, f"{path}: imports are absolute here"
            yield node.module
            for alias in node.names:
                yield f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def room(path: Path) -> str:
    return path.relative_to(KIT).parts[0].removesuffix(".py")


def wrong_imports(modules: list[Path]) -> list[str]:
    """Name what a module of the kit imports and should not."""
    wrong = []
    for path in modules:
        for name in imported(path):
            top, *rest = name.split(".")
            if top in OUTSIDE:
                wrong.append(f"{path.name} imports {name}")
            if name.startswith("ddp_lab.kit.") and room(path) in ROOMS:
                if rest[1] not in KNOWS[room(path)]:
                    wrong.append(f"{path.name} imports {name}")
                if len(rest) == 2 and rest[1] not in ROOMS:  # ddp_lab.kit's own names
                    wrong.append(f"{path.name} imports {name}, which is upstairs")
    return wrong


def files(root: Path) -> dict[str, Path]:
    """Return the modules of the house by their full names."""
    found = {}
    for folder in ("ddp_lab/kit", "figs", "bench", "tools", "classroom"):
        for path in (root / folder).rglob("*.py"):
            name = ".".join(path.relative_to(root).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


def circle(modules: dict[str, Path]) -> list[str]:
    """Return modules that import each other in a circle; [] if there is none."""
    edges = {}
    for name, path in modules.items():
        # A package's own file gathers what is below it; that is no circle.
        own = f"{name}." if path.name == "__init__.py" else None
        names = {n for n in imported(path) if n in modules and n != name}
        edges[name] = {n for n in names if not (own and n.startswith(own))}
    done: set[str] = set()

    def search(name: str, path: list[str]) -> list[str]:
        if name in path:
            return path[path.index(name) :]
        if name in done:
            return []
        for other in edges[name]:
            if found := search(other, [*path, name]):
                return found
        done.add(name)
        return []

    return next((found for name in edges if (found := search(name, []))), [])


def test_each_room_knows_only_what_it_may():
    assert wrong_imports(MODULES) == []


def test_no_name_stands_for_two_things():
    """There were two Jobs, two agents, two keepers and two nodes.py."""
    modules: dict[str, list[str]] = {}
    for path in MODULES:
        if not path.name.startswith("__"):
            modules.setdefault(path.stem, []).append(path.name)
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                modules.setdefault(node.name, []).append(path.name)
    twice = {name: where for name, where in modules.items() if len(where) > 1}
    assert twice == {}


def test_nothing_imports_in_a_circle():
    assert circle(files(ROOT)) == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(KIT)))
def test_the_kit_names_no_lesson(path):
    text = path.read_text()
    lessons = [notebook.stem for notebook in (ROOT / "notebooks").glob("*.ipynb")]
    programs = [f"{p.parent.name}/{p.name}" for p in PROGRAMS]
    assert [name for name in (*lessons, *programs) if name in text] == []
    assert not re.search(r"\blesson \d", text)


FILE = re.compile(r"[\w*{}]+\.(json|jsonl|log)")
WITHOUT_THE_KIT = ("rank.py", "proxy.py")


@pytest.mark.parametrize("script", WITHOUT_THE_KIT)
def test_scripts_without_the_kit_write_files_of_the_record(script):
    """They cannot import its names."""
    known = {value for value in vars(names).values() if isinstance(value, str)}
    tree = ast.parse((KIT / "run" / script).read_text())
    docs = {
        ast.get_docstring(node, clean=False)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef))
    }
    texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)]
    said = [t for t in texts if isinstance(t, str) and t not in docs]
    found = {m[0] for text in said for m in FILE.finditer(text)}
    assert found <= known


@pytest.mark.parametrize("where", ["run", "played", "slurm"])
def test_files_of_a_run_are_called_by_their_names(where):
    """They were bare strings in nine modules."""
    known = {
        v for v in vars(names).values() if isinstance(v, str) and FILE.fullmatch(v)
    }
    bare = [
        f"{path.name}:{node.lineno}: {node.value}"
        for path in (KIT / where).glob("*.py")
        if path.name not in WITHOUT_THE_KIT
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and node.value in known
    ]
    assert bare == []


def test_modules_that_the_kit_mentions_are_there():
    """Docstrings named modules that had moved."""
    there = {path.name for path in MODULES}
    for path in MODULES:
        named = re.findall(r"[Ss]ee (?:\w+/)?(\w+\.py)", path.read_text())
        assert {*named} <= there, path


def test_a_constant_is_the_same_number_everywhere():
    """PATIENCE was seven numbers once."""
    numbers: dict[str, dict[str, str]] = {}
    for name, path in files(ROOT).items():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
                if type(node.value.value) in (int, float):
                    for target in node.targets:
                        constant, value = ast.unparse(target), ast.unparse(node.value)
                        numbers.setdefault(constant, {})[name] = value
    twice = {n: by for n, by in numbers.items() if len(set(by.values())) > 1}
    assert twice == {}
