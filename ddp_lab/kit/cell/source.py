"""A program's text as its parts: imports, and statements that may be exchanged.

What is put together again is formatted as ruff would, if its parts are: learners have
no formatter.
"""

import ast
import functools
import symtable
import sys
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

WIDTH = 88  # columns


class SourceError(Exception):
    """Two texts do not fit together; the message says why."""


@dataclass(frozen=True)
class Import:
    """One name that a program imports."""

    module: str
    name: str = ""  # of `from module import name`
    alias: str = ""

    @property
    def bound(self) -> str:
        """The name that it defines."""
        return self.alias or self.name or self.module.partition(".")[0]

    @property
    def key(self) -> str:
        """What stands for it: of two imports with one key the later one counts."""
        return self.alias or self.name or self.module


@dataclass(frozen=True)
class Item:
    """A top-level statement, with the comments above it."""

    text: str
    names: frozenset[str] = frozenset()  # that it defines
    uses: frozenset[str] = frozenset()  # of the module's names, or builtins
    is_block: bool = False  # a function or a class
    above: int = 0  # blank lines above it


@dataclass
class Source:
    """A program taken apart."""

    docstring: str = ""  # with its quotes
    imports: list[Import] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)

    @property
    def names(self) -> dict[str, Item]:
        """Each name with the item that defines it."""
        return {name: item for item in self.items for name in sorted(item.names)}

    @property
    def text(self) -> str:
        """The parts put together, without a newline at the end."""
        head = [part for part in (self.docstring, import_lines(self.imports)) if part]
        text, below_block = "\n\n".join(head), False
        for number, item in enumerate(self.items):
            blank = max(min(item.above, 2), number == 0)
            blank = 2 if item.is_block or below_block else blank
            text += "\n" * (blank + 1 if text else 0) + item.text
            below_block = item.is_block
        return text


def take_apart(text: str) -> Source:
    """Return the parts of `text`.

    Raises:
        SyntaxError: if it is no Python.
    """
    kept = _taken_apart(text)
    return replace(kept, imports=[*kept.imports], items=[*kept.items])


@functools.lru_cache(maxsize=1024)  # a program is made of others, cell by cell
def _taken_apart(text: str) -> Source:
    source, lines, done, tree = Source(), text.splitlines(), 0, ast.parse(text)
    waiting: list[str] = []  # comments above an import: it will stand elsewhere
    for nodes in _by_line(tree.body):
        first, last = _first_line(nodes[0]), nodes[-1].end_lineno or 0
        above = [*waiting, *_below_last(source.items, lines[done : first - 1])]
        waiting, own, done = [], lines[first - 1 : last], last
        if all(isinstance(node, ast.Import | ast.ImportFrom) for node in nodes):
            source.imports += [each for node in nodes for each in _imports(node)]
            waiting = [line for line in above if line]
        elif nodes[0] is tree.body[0] and ast.get_docstring(tree) is not None:
            source.docstring = "\n".join(own)
            waiting = [line for line in above if line]
        else:
            is_block = any(isinstance(node, BLOCKS) for node in nodes)
            source.items.append(_item(above, own, is_block))
    if any(end := [*waiting, *_below_last(source.items, lines[done:])]):
        source.items.append(_item(end, []))
    return source


BLOCKS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _by_line(body: Sequence[ast.stmt]) -> list[list[ast.stmt]]:
    """Return statements, together where they share a line."""
    groups: list[list[ast.stmt]] = []
    for node in body:
        if groups and node.lineno == groups[-1][-1].end_lineno:
            groups[-1].append(node)
        else:
            groups.append([node])
    return groups


def _first_line(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _below_last(items: list[Item], between: list[str]) -> list[str]:
    """Give indented comments back to the statement above; return the other lines."""
    ends = [n for n, line in enumerate(between, 1) if line.startswith((" ", "\t"))]
    if ends and items:
        text = "\n".join([items[-1].text, *between[: ends[-1]]])
        items[-1] = replace(items[-1], text=text)
        return between[ends[-1] :]
    return between


def _imports(node: ast.stmt) -> Iterable[Import]:
    if isinstance(node, ast.Import):
        for each in node.names:
            yield Import(each.name, "", each.asname or "")
    if isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        for each in node.names:
            yield Import(module, each.name, each.asname or "")


def _item(above: list[str], own: list[str], is_block: bool = False) -> Item:
    blank = next((n for n, line in enumerate(above) if line.strip()), len(above))
    text = "\n".join([*above[blank:], *own]).strip("\n")
    return Item(text, *_names(text), is_block, blank)


@functools.lru_cache(maxsize=4096)  # most programs share most of their items
def _names(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names that a statement defines, and those that it uses."""
    table = symtable.symtable(text, "cell", "exec")
    symbols = table.get_symbols()
    names = {
        symbol.get_name()
        for symbol in symbols
        if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
    }
    uses = {symbol.get_name() for symbol in symbols if symbol.is_referenced()}
    for child in table.get_children():
        uses |= _globals(child)
    return frozenset(names), frozenset(uses)


def _globals(table: symtable.SymbolTable) -> set[str]:
    """Return the names of the module that a function or a class uses."""
    names = {each.get_name() for each in table.get_symbols() if each.is_global()}
    return names.union(*(_globals(child) for child in table.get_children()))


def joined(theirs: Iterable[Import], ours: Iterable[Import]) -> list[Import]:
    """Return all imports; of two for one name ours."""
    return list({each.key: each for each in (*theirs, *ours)}.values())


def import_lines(imports: Iterable[Import]) -> str:
    """Return the lines of `imports`, sorted as isort does."""
    sections: list[list[str]] = [[], [], [], []]
    own = {each for each in imports if not each.name}
    for each in sorted(own, key=lambda each: (each.module.lower(), each.alias)):
        alias = f" as {each.alias}" if each.alias else ""
        sections[_section(each)].append(f"import {each.module}{alias}")
    statements: dict[tuple, list[Import]] = {}  # what is renamed has one of its own
    for each in sorted(set(imports) - own, key=_order):
        alone = each.alias and each.name
        statements.setdefault((each.module, alone, each.alias), []).append(each)
    for members in statements.values():
        sections[_section(members[0])].append(_from(members))
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def _section(each: Import) -> int:
    top = each.module.partition(".")[0]
    if top == "__future__":
        return 0
    if top == "ddp_lab":  # the house's own stand last
        return 3
    return 1 if top in sys.stdlib_module_names else 2


def _order(each: Import) -> tuple:
    """Return by what members are sorted: constants, then classes, then the rest."""
    name = each.name
    kind = 0 if name.isupper() and len(name) > 1 else 2 - name[:1].isupper()
    return each.module.lower(), each.module, kind, name.lower(), name, each.alias


def _from(several: Sequence[Import]) -> str:
    names = [
        f"{each.name} as {each.alias}" if each.alias else each.name for each in several
    ]
    line = f"from {several[0].module} import {', '.join(names)}"
    if len(line) <= WIDTH:
        return line
    lines = "".join(f"    {name},\n" for name in names)
    return f"from {several[0].module} import (\n{lines})"


def merge(theirs: Sequence[Item], ours: Sequence[Item]) -> list[Item]:
    """Return the items of a program with ours in the places of those that they replace.

    What is new stands above what follows it in `ours`, and above what uses it;
    constants stand among the constants.

    Raises:
        SourceError: if only a part of what an item defines is replaced.
    """
    mine = {name for item in ours for name in item.names}
    where: dict[str, int] = {}
    for number, item in enumerate(theirs):
        if item.names & mine and item.names - mine:
            kept, both = sorted(item.names - mine), sorted(item.names)
            reason = f"{', '.join(both)} are defined together"
            raise SourceError(f"{reason}: define {', '.join(kept)} as well")
        for name in item.names:
            where.setdefault(name, number)
    blocks = {name for i in (*theirs, *ours) if i.is_block for name in i.names}
    below = next((n for n, i in enumerate(theirs) if i.is_block), len(theirs))
    first_block = next((n for n, i in enumerate(ours) if i.is_block), len(ours))
    # Above main, unless main is ours: what we have below it stays there.
    place = len(theirs) if "main" in mine else where.get("main", len(theirs))
    places: list[int] = []
    for number, item in reversed(list(enumerate(ours))):
        known = [where[name] for name in item.names if name in where]
        users = [n for n, i in enumerate(theirs) if i.is_block and i.uses & item.names]
        place = min(known or [place, *users])
        is_constant = number < first_block and not item.uses & blocks
        places.insert(0, below if is_constant and not known else place)
    merged: list[Item] = []
    for number in range(len(theirs) + 1):
        merged += [i for i, at in zip(ours, places, strict=True) if at == number]
        if number < len(theirs) and not theirs[number].names & mine:
            merged.append(theirs[number])
    return merged


def reached(items: Iterable[Item], from_names: Collection[str]) -> set[str]:
    """Return the names that are used by what `from_names` use, and so on."""
    items, names, new = list(items), set[str](), set(from_names)
    while new:
        names |= new
        used = {n for item in items if item.names & new for n in item.uses}
        new = used - names
    return names
