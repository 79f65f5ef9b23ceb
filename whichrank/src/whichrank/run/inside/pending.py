"""Tell an exception that is still to be told from one that the program has caught.

Python calls both handled: it is the same in a `finally`, at the end of a `with` and in
an `except`. The outermost frame of the exception's traceback is the one that deals with
it, and the line at which that frame stands tells how, in the program's source.
"""

import ast
import linecache
import re
from collections.abc import Sequence
from functools import lru_cache
from types import CodeType, FrameType

MOST = 10  # exceptions, each raised while the one before it was handled
EXITS = ("exit", "_exit", "quit", "abort")  # of sys, of os, or built in
# Of a wrong escape Python would warn, in the program's name. What a string says is of
# no use here, but for \N{...}, which may stand in an f-string.
ESCAPE = re.compile(r"\\([^N\r\n\\'\"])|\\.", re.DOTALL)
Try = (ast.Try, getattr(ast, "TryStar", ast.Try))  # of Python 3.11
With = (ast.With, ast.AsyncWith)
Definition = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def find(error: BaseException | None, frame: FrameType | None) -> BaseException | None:
    """Return the exception that will go on when a thread has done what it does now.

    None if all that it handles is caught, or nothing tells: a program without its
    source, say, or a library that is no Python.

    Args:
        error: what the thread handles.
        frame: its innermost frame.
    """
    stack = set()
    while frame:
        stack.add(frame)
        frame = frame.f_back
    for _ in range(MOST):
        if error is None:
            break
        calls = error.__traceback__
        if calls and calls.tb_frame in stack and not isinstance(error, GeneratorExit):
            deals = calls.tb_frame
            if goes_on(deals.f_code, calls.tb_lineno, deals.f_lineno):
                return error
        error = error.__context__
    return None


@lru_cache(64)
def goes_on(code: CodeType, raised: int, now: int) -> bool:
    """Tell whether an exception of line `raised` goes on from line `now`.

    Both are lines of the function with this code.
    """
    source = "".join(linecache.getlines(code.co_filename))
    tree = ast.parse(ESCAPE.sub(lambda m: "//" if m[1] else m[0], source))
    function = next((node for node in ast.walk(tree) if _is(node, code)), None)
    nodes = ast.walk(function) if function else ()
    return any(_passes(node, raised, now) for node in nodes)


def _is(node: ast.AST, code: CodeType) -> bool:
    """Tell whether a node is the function of this code, or its module.

    A file may have been changed: then no function of this name begins at its line.
    """
    if isinstance(node, ast.Module):
        return code.co_name == "<module>"
    if not isinstance(node, Definition) or node.name != code.co_name:
        return False
    first, *_ = [*node.decorator_list, node]
    return first.lineno == code.co_firstlineno


def _passes(node: ast.AST, raised: int, now: int) -> bool:
    """Tell whether a frame at line `now` lets pass what line `raised` has raised.

    Args:
        node: a statement, which may hold both.
    """
    if isinstance(node, With):
        *_, last = node.items  # where the frame is while it ends
        at_end = node.lineno <= now <= (last.context_expr.end_lineno or 0)
        return at_end and _holds(node.body, raised)
    if not isinstance(node, Try):
        return False
    if _holds(node.finalbody, now):
        return node.lineno <= raised < node.finalbody[0].lineno
    again = [each for each in node.handlers if _holds([each], now)]
    return bool(again) and _holds(node.body, raised) and _raises(again[0])


def _holds(body: Sequence[ast.stmt | ast.ExceptHandler], line: int) -> bool:
    return bool(body) and body[0].lineno <= line <= (body[-1].end_lineno or 0)


def _raises(handler: ast.ExceptHandler) -> bool:
    """Tell whether a handler ends with an exception, and leaves in no other way."""
    leaves = (ast.Return, ast.Break, ast.Continue)
    if any(isinstance(node, leaves) for node in ast.walk(handler)):
        return False
    last = handler.body[-1]
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        called = last.value.func
        return getattr(called, "attr", getattr(called, "id", "")) in EXITS
    return isinstance(last, ast.Raise)
