"""Say under each program which of its lines no earlier program of the course has.

A program is complete alone, so much of it a reader knows already. `refresh` writes the
line, in italics, at the head of the prose that follows a program's cell.
"""

import re
import zlib
from collections.abc import Sequence

from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

from ddp_lab.kit.explain.words import listed

WRITEFILE = "%%writefile "
MOST = 5  # ranges that are named
SAYS = re.compile(r"\A\*(?:New in this file|All of this file).*\*\n*")


def refresh(notebook: NotebookNode, known: set[str]) -> None:
    """Write the line under each program of `notebook`.

    Args:
        notebook: a lesson; changed in place.
        known: the lines of all programs before it; those of its own are added.
    """
    cells = []
    under = ""  # what is to be said of the program above
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            prose = SAYS.sub("", cell.source)
            if not prose and not under:
                continue
            cell.source = f"{under}\n\n{prose}".strip() if under else prose
        elif under:
            cells.append(_markdown(under))
        under = ""
        cells.append(cell)
        if cell.cell_type == "code" and cell.source.startswith(WRITEFILE):
            lines = cell.source.splitlines()[1:]  # as the file counts them
            under = says(lines, known)
            known |= {line.strip() for line in lines}
    if under:
        cells.append(_markdown(under))
    notebook.cells = cells


def _markdown(text: str) -> NotebookNode:
    cell = new_markdown_cell(text)
    cell.id = f"new-{zlib.crc32(text.encode()):08x}"  # the same in every execution
    return cell


def says(lines: list[str], known: set[str]) -> str:
    """Return the line that tells which of a program's `lines` are not `known`.

    The docstring is no part of it: every program has its own.
    """
    end = next(n for n, line in enumerate(lines, 1) if n > 1 and '"""' in line)
    full = [n for n, line in enumerate(lines, 1) if line.strip() and n > end]
    new = [number for number in full if lines[number - 1].strip() not in known]
    if len(new) == len(full):
        return "*All of this file is new.*"
    where = [f"{a}–{b}" if a < b else f"{a}" for a, b in ranges(new)]
    if not where:
        return "*New in this file: nothing but its docstring.*"
    word = "line" if where == [str(new[0])] else "lines"
    return f"*New in this file: {word} {listed(where)}.*"


def ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return at most `MOST` runs of numbers, (first, last); small gaps are closed."""
    gap = 0
    while True:
        gap += 1
        runs: list[tuple[int, int]] = []
        for number in numbers:
            if runs and number - runs[-1][1] <= gap:
                runs[-1] = runs[-1][0], number
            else:
                runs.append((number, number))
        if len(runs) <= MOST and gap > 2:
            return runs
