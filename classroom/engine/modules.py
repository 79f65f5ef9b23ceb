"""Which files a module needs: its own, and those of all of ours that it imports."""

import ast
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from classroom.engine.assignment import LAB, home
from ddp_lab import ROOT

OURS = "classroom", "tools", "bench", "figs"
"""The packages that are looked into; ddp_lab is everywhere."""
_PARSING = threading.Lock()


def modules(roots: Iterable[str]) -> dict[str, Path]:
    """Return the files of the modules `roots`, and of all of ours that they import.

    By path, as seen from the repository's root; an assignment of a course's own lies
    elsewhere.
    """
    found: dict[str, Path] = {}
    todo = list(roots)
    while todo:
        name = todo.pop()
        for path, file in _files(name):
            if path not in found:
                found[path] = file
                todo += imported(file.read_text())
    return found


def _files(name: str) -> Iterator[tuple[str, Path]]:
    """Yield the file of a module and those of its packages; none if it is not ours.

    The last part of `name` may be something in the module.
    """
    parts = name.split(".")
    if parts[0] not in OURS:
        return
    own = parts[:2] == ["classroom", "assignments"] and len(parts) > 2
    for count in range(1, len(parts) + 1):
        base = home(parts[2]) if own and count > 2 else LAB
        for end in ("/__init__.py", ".py"):
            path = "/".join(parts[:count]) + end
            course = parts[0] == "classroom"
            file = base / path.partition("/")[2] if course else ROOT / path
            if file.is_file():
                yield path, file


def parsed(text: str) -> ast.Module:
    """Return Python text as a tree. Many submissions are judged at once, and in some
    Pythons, such as 3.11.7, two threads that parse at once may get a SystemError.
    """
    with _PARSING:
        return ast.parse(text)


def imported(text: str) -> list[str]:
    """Return the full names that Python text imports, anywhere in it."""
    found = []
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found
