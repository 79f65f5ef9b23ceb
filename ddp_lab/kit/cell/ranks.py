"""%%ranks 4: a few lines on four ranks, and later cells that go on with them.

A launch runs the cells again that came before, without what they printed, and then the
new one: no process lives between two cells, so that nothing is left over or out of
step. Ranks are seeded by their number, so the same comes out each time. What a launch
runs is a program in build/ranks, as torchrun would start it in a terminal; beside it is
each cell, with the lines that the notebook shows.
"""

import ast
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from traceback import format_exception_only
from typing import Any

from IPython.core.error import UsageError

from ddp_lab.kit.cell import written
from ddp_lab.kit.cell.program import ProgramError, with_end
from ddp_lab.kit.cell.source import take_apart
from ddp_lab.kit.draw.svg import Svg
from ddp_lab.kit.draw.values import held
from ddp_lab.kit.run.result import Run

FOLDER = Path("build", "ranks")  # from the folder that a notebook works in
SLOW = 5.0  # seconds of the cells before, of which the reader should know
PROGRAM = '''
"""Cells of a notebook, one after the other; only the last one is shown."""

import ast
import contextlib
import functools
import io
import random
import time
from pathlib import Path

import torch
import torch.distributed as dist

CELLS = {cells}


def execute(cell, scope):
    """Execute a cell; return what its last line is worth, if that is an expression."""
    tree = ast.parse(Path(cell).read_text(), cell)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, cell, "exec"), scope)
    if last:
        return eval(compile(ast.Expression(last.value), cell, "eval"), scope)


def numbers(value):
    """Return a value as JSON has it; None if it is no number, nor made of a few."""
    if isinstance(value, torch.Tensor):
        few = value.numel() <= 64 and not value.is_complex()
        return value.tolist() if few else None
    if isinstance(value, list | tuple):
        parts = [numbers(part) for part in value]
        return parts if parts and None not in parts else None
    return value if isinstance(value, int | float) else None


def main(rank, world_size, device):
    torch.manual_seed(rank)
    random.seed(rank)
    scope = {{"torch": torch, "dist": dist, "device": device, "__name__": "__main__"}}
    scope |= {{"rank": rank, "world_size": world_size}}
    began, unseen = time.perf_counter(), io.StringIO()
    with contextlib.redirect_stdout(unseen), contextlib.redirect_stderr(unseen):
        for cell in CELLS[:-1]:
            execute(cell, scope)
    before = time.perf_counter() - began
    value = execute(CELLS[-1], scope)
    if (known := numbers(value)) is None and value is not None:
        print(value, flush=True)
    return {{"before": before, "value": known}}
'''


@dataclass
class Cells:
    """What the ranks of a notebook have done so far."""

    ranks: int
    paths: list[str] = field(default_factory=list)


so_far: Cells | None = None
"""Of this kernel; None before the first cell."""


def ranks(
    line: str, cell: str, torchrun: Callable[[dict, list[str]], Run]
) -> tuple[Run, Svg | None]:
    """Run a cell on ranks, after those before it.

    Args:
        line: what stands behind the magic: the number of ranks, and `--fresh` if the
            cells before are to be forgotten.
        cell: the lines.
        torchrun: runs a command, shows what it prints, and returns the run.

    Returns:
        The run, and a picture of what the cell's last expression is on each rank, if
        that is a tensor, or numbers.

    Raises:
        ProgramError: if the cell is no Python, with its line.
        RunFailed: then the next cell goes on as if this one had not been there.
    """
    global so_far
    options, going = _options(line)
    path = _write(f"# %%ranks {line}".rstrip() + f"\n{cell.rstrip()}\n", "cell")
    last = _last(path)
    cells = [*going.paths, path]
    listed = ",\n    ".join(f"{each!r}" for each in cells)
    program = take_apart(PROGRAM.format(cells=f"[\n    {listed},\n]").strip())
    path = _write(with_end(program, "%%ranks"), "ranks")
    command = ["--nproc-per-node", str(going.ranks), path]
    run = torchrun({"timeout": 10.0} | options, command)
    if run.failure is None:
        so_far = Cells(going.ranks, cells)
        if (slow := max(run["before"])) > SLOW:
            print(f"(The cells before this one took {slow:.0f} seconds to run again.)")
    values = [facts.get("value") for facts in run.facts]
    shown = any(value is not None for value in values)
    return run, held(last, values) if shown else None


def _options(line: str) -> tuple[dict, Cells]:
    """Return the options of a launch, and the cells that it goes on with."""
    words, options = shlex.split(line), dict[str, Any]()
    fresh = so_far is None
    for word in words:
        if word == "--fresh":
            fresh = True
        elif word == "--expect-failure":
            options["expect_failure"] = True
        elif not word.isdecimal() or int(word) < 1:
            raise UsageError(f"%%ranks takes a number of ranks, not {word!r}")
    counts = [int(word) for word in words if word.isdecimal()]
    if fresh or so_far is None:
        if not counts:
            raise UsageError("on how many ranks? For example: %%ranks 4")
        return options, Cells(counts[0])
    if counts and counts[0] != so_far.ranks:
        begin = f"%%ranks --fresh {counts[0]}"
        raise UsageError(f"the cells before ran on {so_far.ranks}; begin with {begin}")
    return options, so_far


def _last(path: str) -> str:
    """Return the text of the expression that a cell ends with, or "".

    Raises:
        ProgramError: if the cell is no Python.
    """
    try:
        tree = ast.parse(Path(path).read_text(), path)
    except SyntaxError as error:
        said = "".join(format_exception_only(error))
        raise ProgramError(f"the cell is no Python:\n{said}") from None
    if not tree.body:
        raise UsageError("%%ranks: what the ranks do comes below")
    last = tree.body[-1]
    return ast.unparse(last.value) if isinstance(last, ast.Expr) else ""


def _write(text: str, kind: str) -> str:
    """Write a file that is named after what it holds; return its path."""
    path = str(FOLDER / f"{kind}_{sha256(text.encode()).hexdigest()[:6]}.py")
    written.write(path, text)
    return path
