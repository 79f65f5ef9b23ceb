"""%%ranks 4: a few lines on four ranks. %%ranks alone: more lines, on those ranks.

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

from IPython import get_ipython
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
UNKNOWN = re.compile(r"NameError: name '(\w+)' is not defined")
AS_IF = "the next one goes on as if this one had not been there"
SCREEN = "plt.show("
SLOW = 5.0  # seconds of the cells before, of which the reader should know
PROGRAM = '''
"""Cells of a notebook, one after the other; only the last one is shown."""

import ast
import contextlib
import io
import os
import random
import time
from pathlib import Path

import numpy
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
    os.environ["MPLBACKEND"] = "agg"  # the notebook's own has nowhere to show here
    for seed in (torch.manual_seed, random.seed, numpy.random.seed):
        seed(rank)
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
) -> tuple[Run, Svg | None]:
    """Run a cell on ranks.

    Args:
        words: the number of ranks; or nothing, to go on after the cells before.
        cell: the lines.
        start: starts torchrun with these words, shows what it prints, and returns the
            run.

    Returns:
        The run, and a picture of what the cell's last expression is on each rank, if
        that is a tensor, or numbers.

    Raises:
        ProgramError: if the cell is no Python, with its line.
        RunFailed: then the next cell goes on as if this one had not been there.
        UsageError: the same, if a rank has left before the cell's end.
    """
    global so_far
    going = _going(words)
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
        raise _told(failed) from None
    if run.failure is None:
        if left := [r for r, facts in enumerate(run.facts) if "before" not in facts]:
            who = f"rank {left[0]} has" if len(left) == 1 else f"{len(left)} ranks have"
            raise UsageError(f"{who} left before the end of the cell; {AS_IF}")
        so_far = Cells(going.ranks, cells)
        if (slow := max(run["before"])) > SLOW:
            print(f"(The cells before this one took {slow:.0f} seconds to run again.)")
        if SCREEN in cell:
            print("(Ranks have no screen: plt.savefig keeps a picture.)")
    values = [facts.get("value") for facts in run.facts]
    shown = any(value is not None for value in values)
    return run, held(last, values) if shown else None


def _told(failed: RunFailed | RunInterrupted) -> RunFailed | RunInterrupted:
    """Return a failure whose traceback begins in a cell."""
    if failed.run is None or failed.run.failure is None:
        return failed
    failure = failed.run.failure
    failure = replace(failure, traceback=RUNS_CELLS.sub("", failure.traceback))
    told, shell = type(failed).of(replace(failed.run, failure=failure)), get_ipython()
    unknown = UNKNOWN.match(failure.cause)
    if isinstance(told, RunFailed) and unknown and shell:
        if unknown[1] in shell.user_ns:
            told.help = f"Ranks do not see the notebook's {unknown[1]}: define it here."
    return told


def _going(words: list[str]) -> Cells:
    """Return the cells that a new one goes on with."""
    if not words:
        if so_far is None:
            raise UsageError("on how many ranks? For example: %%ranks 4")
        return so_far
    if len(words) > 1 or not words[0].isdecimal() or int(words[0]) < 1:
        raise UsageError(f"%%ranks takes a number of ranks, not {' '.join(words)!r}")
    return Cells(int(words[0]))


def _last(path: str) -> str:
    """Return the text of the expression that a cell ends with, or "".

    Raises:
        ProgramError: if the cell is no Python.
    """
    try:
        tree = ast.parse(Path(path).read_text(), path)
    except SyntaxError as error:
        line = (error.text or "").lstrip()
        if line[:1] in ("!", "%"):
            raise UsageError(f"ranks run Python, not {line.strip()!r}") from None
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
