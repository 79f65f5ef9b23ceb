"""%%program and %%variant: a cell holds what is new, and the file is whole.

What the text of the file is, compose.py says. Here the files around it are read and
written, and what is in it is told below the cell.

%%variant: lines with - and + alone make a copy of a program, to break it.
"""

import json
import re
import traceback
from contextlib import suppress
from html import escape
from pathlib import Path

from IPython.display import display

from ddp_lab import ROOT, from_here
from ddp_lab.kit.cell import end, variants, written
from ddp_lab.kit.cell.changes import ProgramError, replaced, take_out
from ddp_lab.kit.cell.compose import NAME, PUZZLE, Order, Program, ordered, whole
from ddp_lab.kit.cell.source import take_apart
from ddp_lab.kit.words import conjugate, listed


def program(line: str, cell: str) -> None:
    """%%program [--nproc-per-node N] ddp_lab/SUBJECT/NAME.py [--from OTHER.py]

    Write the program that the cell makes, and say below it what is in the file.
    """
    display(says(write(Order.parse(line), cell)), raw=True)


def variant(line: str, cell: str) -> None:
    """%%variant PROGRAM.py

    Write a copy of the program, build/variants/SUBJECT/NAME.py, in which the cell's
    lines with + stand for those with -. The other lines say where: they stay. Of a copy
    that is one already the lines change once more.
    """
    words = line.split()
    if len(words) != 1:
        raise ProgramError("of which program? For example: ddp_lab/SUBJECT/NAME.py")
    path, copy = words[0], from_here(variants.copy_of(words[0]))
    written.texts[copy] = ""
    rest, changes = take_out(cell.splitlines())
    left = [each for each in rest if each.strip()]
    if left or not changes:
        rule = "lines with - go, lines with + come, and those beside them stay"
        raise ProgramError("; not so: ".join([rule, *left[:1]]))
    if (text := _read(path)) is None:
        raise ProgramError(f"there is no {path}: run the cell that writes it")
    written.write(copy, replaced(text, changes, path) + "\n")
    text = f"The whole program: {copy}"
    html = f"<small>{escape(text)}</small>"
    display({"text/plain": text, "text/html": html}, raw=True)


def further(notebook: Path, path: str) -> set[str]:
    """Return what cells of a notebook that go on with the program `path` define."""
    names = set[str]()
    if not notebook.is_file():
        return names
    for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
        with suppress(ProgramError, SyntaxError):
            order, text = ordered("".join(cell["source"])) or (None, "")
            if order and order.path == path and not order.other:
                part = take_apart(text)
                names |= set() if part.docstring else part.names.keys()
    return names


def write(order: Order, cell: str) -> Program:
    """Write the program that a cell makes, and return it.

    Raises:
        ProgramError: if it makes none.
    """
    written.texts[order.path] = ""
    try:
        notebook = notebook_of(order.path)
        names = further(Path(notebook), order.path)
        made = whole(order, cell, _read, notebook, names)
    except SyntaxError as error:
        error.filename, error.lineno = "this cell", (error.lineno or 0) + 1
        if error.end_lineno:
            error.end_lineno += 1
        reason = "".join(traceback.format_exception_only(error))
        raise ProgramError(f"the cell is not valid Python\n{reason}") from None
    written.write(order.path, made.text)
    return made


def _read(path: str) -> str | None:
    """Return the text of the reader's file or, where there is none, of the lab's."""
    files = [file for file in (Path(path), ROOT / path) if file.is_file()]
    return files[0].read_text("utf-8") if files else None


def notebook_of(path: str) -> str:
    """Return the lesson that writes a program, as `notebooks/NAME`; "" if none does."""
    lessons = Path("notebooks").glob("[0-9A][0-9]_*.ipynb")
    # The name of a copy is longer.
    for notebook in sorted(lessons, key=lambda path: len(path.name)):
        for words in re.findall(
            rf'"%%(?:{NAME}|{PUZZLE}) ([^"\\]*)', notebook.read_text("utf-8")
        ):
            if Order.parse(words).path == path:
                return notebook.as_posix()
    return ""


def says(made: Program) -> dict[str, str]:
    """Return the MIME bundle of the line below the cell: what is in the file."""
    path, other = Path(made.order.path), Path(made.order.other)
    if made.order.other:
        parts = (
            [f"{listed(made.new)} {conjugate('are', made.new)} new"] if made.new else []
        )
        parts += [f"{listed(made.changed)} changed"] if made.changed else []
        name = other.name if other.parent == path.parent else other.as_posix()
        gone = f", without {listed(made.gone)}" if made.gone else ""
        text = f"{'; '.join(parts)}; the rest as in {name}{gone}. The whole program: "
    elif made.is_part:
        text = "A part of "
    elif end.RULE in made.text:
        text = "With the end that all programs have: "
    else:
        text = "As it stands here: "
    link = f'<a href="../{escape(made.order.path)}">{escape(made.order.path)}</a>'
    return {
        "text/plain": text + made.order.path,
        "text/html": f"<small>{escape(text)}{link}</small>",
    }
