"""Plant small mistakes in a room of the kit, and see which ones its tests notice.

    python -m tools.mutants explain --count 60
    python -m tools.mutants run --count 20 --seed 1

Each mistake is one change of the code's syntax tree: a comparison turned round, a
condition negated, a statement dropped, a constant changed, a result lost. The tests of
the room run against a copy of the repository, once for each mistake. The survivors are
printed as a diff: each needs a test, or a reason why it changes nothing.
"""

import argparse
import ast
import difflib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from queue import Queue
from typing import Any

from ddp_lab import ROOT

KIT = Path("ddp_lab/kit")
# What answers in seconds.
TESTS = {
    "explain": [
        "tests/test_evidence.py",
        "tests/test_symptoms.py",
        "tests/test_machine_room.py",
    ],
    "terminal": ["tests/test_verdict.py"],
    "run": ["tests/test_launch.py", "tests/test_warm_clients.py", "-m", "not full"],
}
NOTHING = "return None"
TOO_LONG = 300  # seconds: a mistake that makes the tests hang has been noticed
OPPOSITE: dict[Any, Any] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
}


@dataclass(frozen=True)
class Mutant:
    """One mistake in one file."""

    path: Path
    """From the repository's root."""
    before: str
    after: str

    def diff(self) -> str:
        """Return the changed lines, headed by file and line."""
        old, new = self.before.splitlines(), self.after.splitlines()
        hunks = list(difflib.unified_diff(old, new, lineterm="", n=0))
        line = hunks[2].split()[1].lstrip("-").partition(",")[0]
        return "\n".join([f"{self.path}:{line}", *hunks[3:]])


def mutants(path: Path) -> Iterator[Mutant]:
    """Return every mistake that can be planted in the file at `path`."""
    text = (ROOT / path).read_text(encoding="utf-8")
    source = text.encode()  # columns count bytes
    starts = [0, *accumulate(map(len, source.splitlines(keepends=True)))]
    for node in _code(ast.parse(text)):
        for place, new in _mistakes(node):
            begin = starts[place.lineno - 1] + place.col_offset
            end = starts[place.end_lineno - 1] + place.end_col_offset
            code = ast.unparse(new)
            code = f"({code})" if isinstance(new, ast.expr) else code
            after = (source[:begin] + code.encode() + source[end:]).decode()
            try:
                compile(after, str(path), "exec")
            except SyntaxError:
                continue  # a key of a dict pattern, say
            yield Mutant(path, text, after)


def _code(tree: ast.Module) -> Iterator[ast.AST]:
    """Return the nodes that do something: no docstring, annotation or f-string part."""
    ignored: set[int] = set()
    for node in ast.walk(tree):
        hidden: list[ast.AST | None] = []
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            hidden = [node]
        elif isinstance(node, ast.JoinedStr):
            hidden = [*node.values]
        elif isinstance(node, ast.FunctionDef):
            hidden = [node.returns, *node.decorator_list]
        elif isinstance(node, ast.arg | ast.AnnAssign):
            hidden = [node.annotation]
        elif isinstance(node, ast.ClassDef):
            hidden = [*node.decorator_list, *node.bases]
        for one in hidden:
            if one is not None:
                ignored |= {id(inner) for inner in ast.walk(one)}
        if id(node) not in ignored:
            yield node


def _mistakes(node: Any) -> Iterator[tuple[Any, Any]]:
    """Return parts of `node`, and what may stand in their place."""
    new = deepcopy(node)
    if isinstance(new, ast.Compare) and type(new.ops[0]) in OPPOSITE:
        new.ops[0] = OPPOSITE[type(new.ops[0])]()
        yield node, new
    elif isinstance(new, ast.BoolOp | ast.BinOp) and type(new.op) in OPPOSITE:
        new.op = OPPOSITE[type(new.op)]()
        yield node, new
    elif isinstance(new, ast.UnaryOp) and isinstance(new.op, ast.Not):
        yield node, new.operand
    elif isinstance(new, ast.Constant) and new.value not in (None, ...):
        yield node, ast.Constant(_another(new.value))
    elif isinstance(new, ast.Return) and ast.unparse(new) not in ("return", NOTHING):
        yield node, ast.Return(ast.Constant(None))
    elif isinstance(new, ast.Expr | ast.AugAssign | ast.Continue | ast.Break):
        yield node, ast.Pass()
    tests = [node.test] if isinstance(node, ast.If | ast.While | ast.IfExp) else []
    for test in node.ifs if isinstance(node, ast.comprehension) else tests:
        if not isinstance(test, ast.Compare | ast.UnaryOp):  # they have their own
            yield test, ast.UnaryOp(ast.Not(), deepcopy(test))


def _another(value: str | bytes | complex) -> str | bytes | complex:
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return value + "X"
    if isinstance(value, bytes):
        return value + b"X"
    return value + 1


def noticed(mutant: Mutant, tree: Path, tests: list[str]) -> bool:
    """Return whether the tests fail in `tree`, a copy, with this mistake in it."""
    (tree / mutant.path).write_text(mutant.after, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-xq", "-p", "no:cacheprovider", *tests]
    env = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=tree, env=env, capture_output=True, timeout=TOO_LONG
        )
        return done.returncode != 0
    except subprocess.TimeoutExpired:
        return True
    finally:
        (tree / mutant.path).write_text(mutant.before, encoding="utf-8")


def copy_of_the_tree(folder: Path) -> Path:
    """Copy what git knows, or would, to `folder`."""
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("room", choices=TESTS)
    parser.add_argument("--count", type=int, default=60, help="how many; 0: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    files = sorted((ROOT / KIT / asked.room).glob("*.py"))
    found = [m for file in files for m in mutants(file.relative_to(ROOT))]
    random.Random(asked.seed).shuffle(found)
    drawn = found[: asked.count or None]
    print(f"{len(drawn)} of {len(found)} mistakes that can be planted", flush=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        trees: Queue[Path] = Queue()
        for number in range(asked.jobs):
            trees.put(copy_of_the_tree(Path(scratch, str(number))))
        untouched = replace(drawn[0], after=drawn[0].before)
        if noticed(untouched, trees.queue[0], TESTS[asked.room]):
            sys.exit("the tests fail without a mistake, too")

        def judge(mutant: Mutant) -> bool:
            tree = trees.get()
            try:
                seen = noticed(mutant, tree, TESTS[asked.room])
            finally:
                trees.put(tree)
            print("." if seen else f"\nsurvives: {mutant.diff()}", end="", flush=True)
            return seen

        with ThreadPoolExecutor(asked.jobs) as pool:
            seen = list(pool.map(judge, drawn))
    print(f"\n{sum(seen)} of {len(seen)} noticed ({sum(seen) / len(seen):.0%})")


if __name__ == "__main__":
    main()
