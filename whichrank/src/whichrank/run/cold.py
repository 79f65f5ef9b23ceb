"""Tell which programs a fork would run otherwise than a shell; they start cold.

A fork has what its parent has imported, and hashes and allocates as the parent does. So
all ranks go through a set in one order, which in a shell differs from rank to rank; a
file beside the program that is named like an imported module is not found; and torch
does not read variables that are set before it is imported.
"""

import ast
import re
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

IMPORTS_TORCH = re.compile(r"^\s*(?:import|from) torch", re.M)
SETS_VARIABLES = re.compile(
    r"environ(\[[^\]]+\] *=[^=]| *\|=|\.(update|setdefault)\()|putenv\("
)
SETS = ("set", "frozenset")
# What takes its argument apart, in order.
IN_ORDER = ("list", "tuple", "enumerate", "zip", "map", "filter", "iter", "dict")
IN_ORDER_METHODS = ("join", "extend", "fromkeys")
# What does not depend on the order in which a generator's items come.
ANY_ORDER = ("all", "any", "frozenset", "len", "max", "min", "set", "sorted", "sum")
OF_SETS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.Sub)


def why_cold(program: Path) -> str:
    """Return why a program has to start cold; "" if it need not, or is not there."""
    try:
        for name in sorted(hiding(program.parent)):
            return f"{name}, beside the program, is named like a module of Python"
        if sets_variables(program.read_text(errors="replace")):
            return f"{program.name} sets variables before it imports torch"
        nodes = nodes_of(program)
        for path in (program, *imported(nodes, program.parent)):
            if line := line_of_set_order(nodes if path == program else nodes_of(path)):
                return f"{path.name}:{line} takes a set in order, and ranks may differ"
    except (OSError, SyntaxError, ValueError):
        pass  # which the program itself will say
    return ""


def sets_variables(text: str) -> bool:
    """Tell whether a program with this text sets variables before it imports torch."""
    return bool(SETS_VARIABLES.search(IMPORTS_TORCH.split(text, maxsplit=1)[0]))


def nodes_of(program: Path) -> list[ast.AST]:
    """Return all nodes of a program's syntax tree."""
    return list(ast.walk(ast.parse(program.read_bytes())))


def imported(nodes: list[ast.AST], folder: Path) -> Iterator[Path]:
    """Yield the files in `folder` that a program imports, and those that it names."""
    for node in nodes:
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        paths = [folder / f"{name}.py" for name in names]
        if isinstance(node, ast.Constant) and re.fullmatch(r".+\.py", str(node.value)):
            paths = [Path(str(node.value))]  # such as a cell of %%ranks
        yield from (path for path in paths if path.is_file())


def hiding(folder: Path) -> Iterator[str]:
    """Yield the files in `folder` that programs there import instead of a library."""
    libraries = Path(sysconfig.get_path("purelib"))
    for path in folder.iterdir():
        name = path.stem if path.suffix == ".py" else path.name
        if path.suffix == ".py" or (path / "__init__.py").exists():
            files = (libraries / name, libraries / f"{name}.py")
            if name in sys.stdlib_module_names or any(map(Path.exists, files)):
                yield path.name


def line_of_set_order(nodes: list[ast.AST]) -> int:
    """Return the line of a program that goes through a set; 0 if none is found.

    Names that are given to sets, and attributes, are followed within the file.
    """
    if not any(_is_set(node, set()) for node in nodes):
        return 0
    names, known = set[str](), -1
    while known < len(names):  # of a = set(words); b = a - seen
        known = len(names)
        names |= {name for node in nodes for name in _named(node, names)}
    harmless = {id(each) for node in nodes for each in _in_any_order(node)}
    lines = [
        taken.lineno
        for node in nodes
        if id(node) not in harmless
        for taken in _taken_in_order(node)
        if _is_set(taken, names)
    ]
    return min(lines, default=0)


def _is_set(node: ast.AST, names: set[str]) -> bool:
    """Tell whether an expression is a set, where these names stand for sets."""
    match node:
        case ast.Set() | ast.SetComp():
            return True
        case ast.Name(name) | ast.Attribute(attr=name):
            return name in names
        case ast.Call(ast.Name(name)):
            return name in SETS
        case ast.BinOp(left, op, right) if isinstance(op, OF_SETS):
            return _is_set(left, names) or _is_set(right, names)
    return False


def _named(node: ast.AST, names: set[str]) -> Iterator[str]:
    """Yield the names that `node` gives to a set, where `names` stand for sets."""
    if not isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
        return
    if node.value and _is_set(node.value, names):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            match target:
                case ast.Name(name) | ast.Attribute(attr=name):
                    yield name


def _taken_in_order(node: ast.AST) -> list[ast.expr]:
    """Return the expressions that `node` takes apart item by item."""
    match node:
        case ast.For(_, taken) | ast.Starred(taken):
            return [taken]
        case ast.ListComp() | ast.DictComp() | ast.GeneratorExp():
            return [each.iter for each in node.generators]
        case ast.Call(ast.Name(name), args) if name in IN_ORDER:
            return args
        case ast.Call(ast.Attribute(attr=name), args) if name in IN_ORDER_METHODS:
            return args
    return []


def _in_any_order(node: ast.AST) -> list[ast.expr]:
    """Return the arguments of which `node` does not see the order."""
    match node:
        case ast.Call(ast.Name(name), args) if name in ANY_ORDER:
            return args
    return []
