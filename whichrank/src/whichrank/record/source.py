"""What the text of a program says around a line of it."""

import ast
from collections.abc import Iterator
from functools import lru_cache

from whichrank.record.stacks import Frame

LEAVES = (ast.Pass, ast.Break, ast.Continue, ast.Return, ast.Raise)
LOOPS = (ast.For, ast.AsyncFor, ast.While)


@lru_cache(maxsize=64)
def _loops(text: str) -> tuple[ast.For | ast.AsyncFor | ast.While, ...]:
    try:
        return tuple(n for n in ast.walk(ast.parse(text)) if isinstance(n, LOOPS))
    except (SyntaxError, ValueError, RecursionError):
        return ()


def loops(frame: Frame) -> Iterator[ast.For | ast.AsyncFor | ast.While]:
    """Yield the loops around a line; none if its text is not to be had."""
    for loop in _loops("".join(frame.source)):
        if loop.lineno <= frame.line <= (loop.end_lineno or loop.lineno):
            yield loop


def in_one_loop(one: Frame, other: Frame) -> bool:
    """Tell whether two lines of one file stand in one loop."""
    return one.file == other.file and any(
        loop.lineno <= other.line <= (loop.end_lineno or 0) for loop in loops(one)
    )


def idles(frame: Frame) -> bool:
    """Tell whether a line stands in a `while` that does nothing but look and sleep."""
    whiles = (loop for loop in loops(frame) if isinstance(loop, ast.While))
    return any(all(map(_rests, loop.body)) for loop in whiles)


def _rests(node: ast.stmt) -> bool:
    if isinstance(node, ast.If):
        return all(map(_rests, [*node.body, *node.orelse]))
    sleeps = isinstance(node, ast.Expr) and "sleep(" in ast.unparse(node)
    return sleeps or isinstance(node, LEAVES)
