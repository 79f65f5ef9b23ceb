"""Which line of the script does something; a function that stands before another."""

import functools
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import torch
from torch.jit import _builtins

ROOM = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
LIBRARY = (
    ROOM,  # a thread of it answers the launcher
    os.path.dirname(os.__file__),
    "site-packages",
    "dist-packages",
)


def place() -> str:
    """Return the innermost line of the script, or of what it brings: `train.py:12`."""
    frame: FrameType | None = sys._getframe(1)
    while frame:
        file = frame.f_code.co_filename
        if not file.startswith("<") and not any(part in file for part in LIBRARY):
            return f"{os.path.basename(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def within(*modules: str) -> bool:
    """Return whether a function of one of these modules, or packages, runs."""
    frame: FrameType | None = sys._getframe(1)
    while frame:
        name = frame.f_globals.get("__name__", "")
        if any(name == each or name.startswith(f"{each}.") for each in modules):
            return True
        frame = frame.f_back
    return False


def wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Let `around(original, *args, **kwargs)` stand in the place of a function.

    While torch.compile or torch.jit looks at a function, it finds the original; where
    it is pickled, it is known by the name that it has here.
    """
    original = getattr(owner, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return original(*args, **kwargs)
        return around(original, *args, **kwargs)

    call.__module__, call.__qualname__ = owner.__name__, name
    if isinstance(owner, type):
        call.__module__ = owner.__module__
        call.__qualname__ = f"{owner.__qualname__}.{name}"
    vars(call)["__prepare_scriptable__"] = lambda: original
    if operator := _builtins._find_builtin(original):
        _builtins._register_builtin(call, operator)
    setattr(owner, name, call)
