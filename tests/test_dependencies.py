"""What our files import is declared in pyproject.toml, though another brings it."""

import ast
import re
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

from conftest import tracked

from ddp_lab import ROOT

PYTHON = [ROOT / name for name in tracked() if name.endswith(".py")]
WHICHRANK = ROOT / "whichrank" / "pyproject.toml"  # which the lab depends on
OPTIONAL = {"mpi4py"}  # of make bench, which has a row of it where it is installed


def imported(path: Path) -> set[str]:
    """Return the packages that a file imports, wherever in it."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = [
        alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names
    ]
    absolute = [n for n in nodes if isinstance(n, ast.ImportFrom) and not n.level]
    return {name.partition(".")[0] for name in names + [n.module for n in absolute]}


def test_what_is_imported_is_declared():
    told = [path.read_text() for path in (ROOT / "pyproject.toml", WHICHRANK)]
    words = re.findall(r'"([\w-]+)[^"]*"', "".join(told))
    declared = {word.lower() for word in words}
    # A file is imported by its own name where its folder is on the path.
    ours = {path.stem for path in PYTHON} | {path.parent.name for path in PYTHON}
    names = set().union(*map(imported, PYTHON)) - sys.stdlib_module_names - ours
    of = {  # a package of that name is in these distributions
        name: {each.lower().replace("_", "-") for each in distributions}
        for name, distributions in packages_distributions().items()
    }
    # A package that is not installed, as of another group, may have its own name.
    missing = {n for n in names - OPTIONAL if not declared & of.get(n, {n})}
    assert not missing
