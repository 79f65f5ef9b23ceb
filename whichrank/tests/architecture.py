"""What modules import of each other, for the tests of both houses."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path


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


def modules(folder: Path, root: Path) -> dict[str, Path]:
    """Return the modules below `folder` by their full names, seen from `root`."""
    found = {}
    for path in folder.rglob("*.py"):
        name = ".".join(path.relative_to(root).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def strangers(
    package: str, found: Mapping[str, Path], knows: Mapping[str, set[str]]
) -> list[str]:
    """Name each import of a room of `package` that it may not make.

    Args:
        package: the package whose rooms these are.
        found: its modules by their full names.
        knows: by room, which rooms it may import.
    """
    wrong = []
    for module, path in found.items():
        room, *_ = module.removeprefix(package).lstrip(".").split(".")
        for name in imported(path) if room in knows else ():
            if name.startswith(f"{package}."):
                other = name.removeprefix(f"{package}.").split(".")[0]
                if other not in knows[room]:
                    wrong.append(f"{module} imports {name}")
    return wrong


def twice(found: Mapping[str, Path]) -> dict[str, list[str]]:
    """Return the modules and classes that share a name, and where each is."""
    names: dict[str, list[str]] = {}
    for path in found.values():
        if not path.name.startswith("__"):
            names.setdefault(path.stem, []).append(path.name)
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef):
                names.setdefault(node.name, []).append(path.name)
    return {name: where for name, where in names.items() if len(where) > 1}


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
