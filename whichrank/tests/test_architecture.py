"""The house: which room may know which, and what scripts that run alone repeat."""

import ast
import re
import sys
from pathlib import Path

import pytest
from architecture import circle, imported, modules, strangers, twice
from support import HOUSE, SOURCE

from whichrank.record import names
from whichrank.run import channels

# What each room may import of the others.
KNOWS = {
    "record": {"record"},
    "explain": {"explain", "record"},
    "run": {"run", "explain", "record"},
    "slurm": {"slurm", "run", "record"},
    "launch": {"run", "slurm"},
    "examination": {"examination", "record"},
    "terminal": {"terminal", "examination", "launch", "run", "explain", "record"},
}
MODULES = modules(SOURCE, SOURCE.parent)
FILE = re.compile(r"[\w*{}]+\.(json|jsonl|log)")
ALONE = ("proxy.py", "guard.py")


def test_each_room_knows_only_what_it_may():
    assert strangers("whichrank", MODULES, KNOWS) == []


def test_the_package_knows_nothing_of_a_course():
    for module, path in MODULES.items():
        tops = {name.partition(".")[0] for name in imported(path)}
        assert not {"ddp_lab", "IPython", "tests"} & tops, module
        text = path.read_text()
        assert not re.search(r"ddp.lab|\blessons?\b|\bthe lab\b|notebooks/", text), (
            module
        )


def test_no_name_stands_for_two_things():
    assert twice(MODULES) == {}


def test_nothing_imports_in_a_circle():
    assert circle(MODULES) == []


def said(path: Path) -> set[str]:
    """Return the texts in a module that are no docstrings."""
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.FunctionDef, ast.ClassDef)
    docs = {
        ast.get_docstring(node, clean=False)
        for node in ast.walk(tree)
        if isinstance(node, documented)
    }
    texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)]
    return {text for text in texts if isinstance(text, str)} - docs


def test_what_runs_inside_a_rank_is_little():
    """Each program inherits it, or waits for it."""
    shared = {"whichrank.record.names", "whichrank.run.channels"}
    inside = {name for name in MODULES if name.startswith("whichrank.run.inside")}
    rooms = {"whichrank.record", "whichrank.run"}
    for module in (*inside, *shared, "whichrank.run.rank"):
        for name in imported(MODULES[module]):
            library = name.partition(".")[0] in sys.stdlib_module_names
            known = library or name.startswith("whichrank.") and name not in MODULES
            assert known or name in inside | shared | rooms, f"{module}: {name}"


@pytest.mark.parametrize("script", ALONE)
def test_what_scripts_repeat_that_run_alone_is_what_the_others_say(script):
    """They cannot import the names of files and channels."""
    texts = said(SOURCE / "run" / script)
    files = {value for value in vars(names).values() if isinstance(value, str)}
    assert {m[0] for text in texts for m in FILE.finditer(text)} <= files
    known = {value for name, value in vars(channels).items() if name.isupper()}
    found = {m[0] for text in texts for m in re.finditer(r"WHICHRANK_[A-Z]+", text)}
    assert found <= known


@pytest.mark.parametrize("where", ["run", "slurm"])
def test_files_of_a_run_are_called_by_their_names(where):
    """They were bare strings in nine modules."""
    known = {
        v for v in vars(names).values() if isinstance(v, str) and FILE.fullmatch(v)
    }
    bare = [
        f"{path.name}: {text}"
        for path in (SOURCE / where).rglob("*.py")
        if path.name not in ALONE
        for text in said(path) & known
    ]
    assert bare == []


def test_channels_are_named_in_one_module():
    """Eight environment variables stood wherever they happened to be used."""
    for name, path in MODULES.items():
        if path.name not in (*ALONE, "channels.py"):
            assert not re.search(r"[\"']WHICHRANK_", path.read_text()), name


def test_modules_that_are_mentioned_are_there():
    """Docstrings named modules that had moved."""
    there = {path.name for path in MODULES.values()} | {
        path.name for path in (HOUSE / "tests").glob("*.py")
    }
    for name, path in MODULES.items():
        named = re.findall(r"[Ss]ee (?:\w+/)?(\w+\.py)", path.read_text())
        assert {*named} <= there, name
