"""%%ranks 4: a few lines on four ranks, and later cells that go on with them.

A launch runs the cells again that came before, without what they printed, and then the
new one: no process lives between two cells, so that nothing is left over or out of
step. Ranks are seeded by their number, so the same comes out each time. What a launch
runs is a program in build/ranks, as torchrun would start it in a terminal; beside it is
each cell, with the lines that the notebook shows.
"""

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from traceback import format_exception_only

from IPython.core.error import UsageError

from ddp_lab.kit.cell import written
from ddp_lab.kit.cell.changes import ProgramError
from ddp_lab.kit.cell.compose import with_end
from ddp_lab.kit.cell.source import take_apart
from ddp_lab.kit.draw.svg import Svg
from ddp_lab.kit.draw.values import held
from whichrank import Run, RunFailed, RunInterrupted

FOLDER = Path("build", "ranks")  # from the folder that a notebook works in
PATIENCE = 10.0  # seconds that the ranks of a cell may stand still
# Frames of the program that runs the cells; each of them has a file of its own.
RUNS_CELLS = re.compile(r'^  File "[^"\n]*ranks/ranks_\w+\.py".+\n(?:    .*\n)+', re.M)
SLOW = 5.0  # seconds of the cells before, of which the reader should know
PROGRAM = '''
"""Cells of a notebook, one after the other; only the last one is shown."""

import ast
import contextlib
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
    words: list[str],
    cell: str,
    start: Callable[[list[str]], Run],
    fresh: bool = False,
) -> tuple[Run, Svg | None]:
    """Run a cell on ranks, after those before it.

    Args:
        words: the number of ranks, or nothing: as many as before.
        cell: the lines.
        start: starts torchrun with these words, shows what it prints, and returns the
            run.
        fresh: whether the cells before are to be forgotten.

    Returns:
        The run, and a picture of what the cell's last expression is on each rank, if
        that is a tensor, or numbers.

    Raises:
        ProgramError: if the cell is no Python, with its line.
        RunFailed: then the next cell goes on as if this one had not been there.
    """
    global so_far
    going = _going(words, fresh)
    path = _write(f"{' '.join(['# %%ranks', *words])}\n{cell.rstrip()}\n", "cell")
    last = _last(path)
    cells = [*going.paths, path]
    listed = ",\n    ".join(f"{each!r}" for each in cells)
    program = take_apart(PROGRAM.format(cells=f"[\n    {listed},\n]").strip())
    path = _write(with_end(program, "%%ranks"), "ranks")
    command = ["--nproc-per-node", str(going.ranks), path]
    try:
        run = start(command)
    except (RunFailed, RunInterrupted) as failed:
        raise _without_our_frames(failed) from None
    if run.failure is None:
        so_far = Cells(going.ranks, cells)
        if (slow := max(run["before"])) > SLOW:
            print(f"(The cells before this one took {slow:.0f} seconds to run again.)")
    values = [facts.get("value") for facts in run.facts]
    shown = any(value is not None for value in values)
    return run, held(last, values) if shown else None


def _without_our_frames(
    failed: RunFailed | RunInterrupted,
) -> RunFailed | RunInterrupted:
    """Return a failure whose traceback begins in a cell."""
    if failed.run is None or failed.run.failure is None:
        return failed
    failure = failed.run.failure
    failure = replace(failure, traceback=RUNS_CELLS.sub("", failure.traceback))
    return type(failed).of(replace(failed.run, failure=failure))


def _going(words: list[str], fresh: bool) -> Cells:
    """Return the cells that a new one goes on with."""
    for word in words:
        if not word.isdecimal() or int(word) < 1:
            raise UsageError(f"%%ranks takes a number of ranks, not {word!r}")
    count = int(words[0]) if words else 0
    if so_far is None or fresh:
        if not count:
            raise UsageError("on how many ranks? For example: %%ranks 4")
        return Cells(count)
    if count not in (0, so_far.ranks):
        begin = f"%%ranks --fresh {count}"
        raise UsageError(f"the cells before ran on {so_far.ranks}; begin with {begin}")
    return so_far


def _last(path: str) -> str:
    """Return the text of the expression that a cell ends with, or "".

    Raises:
        ProgramError: if the cell is no Python.
    """
    try:
        tree = ast.parse(Path(path).read_text(), path)
    except SyntaxError as error:
        reason = "".join(format_exception_only(error))
        raise ProgramError(f"the cell is no Python:\n{reason}") from None
    if not tree.body:
        raise UsageError("%%ranks: what the ranks do comes below")
    last = tree.body[-1]
    return ast.unparse(last.value) if isinstance(last, ast.Expr) else ""


def _write(text: str, kind: str) -> str:
    """Write a file that is named after what it holds; return its path."""
    path = str(FOLDER / f"{kind}_{sha256(text.encode()).hexdigest()[:6]}.py")
    written.write(path, text)
    return path
