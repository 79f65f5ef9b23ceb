"""%%program: a cell holds what is new in a program, and the file is whole.

`whole` makes the file's text of the cell's and touches nothing, so that a notebook's
programs can be written without running it; the magic reads and writes files around it.

A cell that begins with a docstring begins a program. One without goes on with the file:
what it defines is added, or takes the place of what has its name. With `--from` a cell
does that to another program, and what nothing uses any more is left out. Lines that
begin with - and +, as in a diff, replace lines inside the other program's functions.
Below a rule line stands what all programs end with.

%%variant: such lines alone make a copy of a program, to break it.
"""

import ast
import json
import re
import shlex
import traceback
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from html import escape
from itertools import groupby
from pathlib import Path

from IPython.display import display

from ddp_lab import ROOT, from_here
from ddp_lab.kit.cell import end, variants, written
from ddp_lab.kit.cell.source import (
    Import,
    Item,
    Source,
    SourceError,
    joined,
    merge,
    reached,
    take_apart,
)
from ddp_lab.kit.words import conjugate, listed

NAME, PUZZLE = "program", "puzzle"
"""The magics whose cells write programs; see puzzle.py for the second one."""
FRAMES = "frames"
"""The folder, beside the programs, of what checks an exercise."""
Read = Callable[[str], str | None]
"""Given a program's path as cells say it, its text; None if there is none."""


class ProgramError(Exception):
    """A cell makes no program; the message says why. Nothing has been written."""

    def _render_traceback_(self) -> list[str]:
        """Show the message in a notebook, not the frames that led to it."""
        return [f"ProgramError: {self}"]


@dataclass(frozen=True)
class Order:
    """What stands behind the magic: [OPTIONS OF TORCHRUN] PATH [--from PATH]."""

    path: str
    other: str = ""
    options: str = "--nproc-per-node 2"

    @classmethod
    def parse(cls, line: str) -> "Order":
        """Read the words behind the magic.

        Raises:
            ProgramError: if they name no program.
        """
        words, other = shlex.split(line), ""
        if "--from" in words[:-1]:
            at = words.index("--from")
            other = words[at + 1]
            del words[at : at + 2]
        if not words or not words[-1].endswith(".py"):
            raise ProgramError("which file? For example: ddp_lab/SUBJECT/NAME.py")
        return cls(words[-1], other, shlex.join(words[:-1]) or cls.options)

    @classmethod
    def of_puzzle(cls, line: str) -> "Order":
        """Read the words behind %%puzzle: its frame has the name of the program."""
        order = cls.parse(line)
        path = Path(order.path)
        return replace(order, other=(path.parent / FRAMES / path.name).as_posix())


def ordered(cell: str) -> tuple[Order, str] | None:
    """Return a cell's order and what stands below; None if it writes no program.

    Raises:
        ProgramError: if its first line names no program.
    """
    first, _, text = cell.partition("\n")
    magic, _, line = first.partition(" ")
    parse = {f"%%{NAME}": Order.parse, f"%%{PUZZLE}": Order.of_puzzle}.get(magic)
    return (parse(line), text) if parse else None


@dataclass(frozen=True)
class Program:
    """A file as a cell makes it, and what can be said of it below the cell."""

    order: Order
    text: str
    is_part: bool  # other cells tell the rest
    new: list[str]  # names that the cell defines
    changed: list[str]  # names whose lines it replaces
    gone: list[str]  # functions and classes that it does without


def whole(
    order: Order,
    cell: str,
    read: Read,
    notebook: str = "",
    further: Collection[str] = (),
) -> Program:
    """Return the program that a cell makes.

    Args:
        order: what stands behind the magic.
        cell: what stands below.
        read: where the text of another program, and of this one so far, comes from.
        notebook: the path of the cell's notebook, for the docstring.
        further: names that further cells of the notebook have put into the program;
            they stay in it when its first cell is run again, which does not show them.

    Raises:
        ProgramError: if the cell makes no program.
        SyntaxError: if it is no Python; lines are counted from below the magic.
    """
    lines, changes = _changes(cell.splitlines()) if order.other else ([cell], [])
    own = _lesson("\n".join(lines))
    compile(own, "cell", "exec", dont_inherit=True)  # it sees more than a parser
    ours = take_apart(own)
    if order.other:
        theirs, source = _from_other(order.other, changes, ours, read)
    elif ours.docstring:
        theirs, source = _first_cell(order.path, ours, read)
    else:
        theirs, source = _further_cell(order.path, ours, read)
    is_part = not order.other and not (ours.docstring and "main" in ours.names)
    if further and not is_part:
        source = _with_further(
            source, take_apart(_lesson(read(order.path) or "")), further
        )
    source = replace(source, docstring=_docstring(theirs, ours, order, notebook))
    old = {name: item.text for name, item in theirs.names.items()}
    later = set(further) - ours.names.keys()
    return Program(
        order,
        with_end(source, order.path),
        is_part,
        [name for item in ours.items for name in sorted(item.names)],
        [
            n
            for n, i in source.names.items()
            if i not in ours.items and n not in later and i.text != old.get(n, i.text)
        ],
        [n for n, i in theirs.names.items() if i.is_block and n not in source.names],
    )


def _lesson(text: str) -> str:
    """Return what stands above the rule line."""
    return re.split(rf"^{re.escape(end.RULE)}", text, maxsplit=1, flags=re.M)[0]


def _from_other(
    path: str, changes: Sequence["Replacement"], ours: Source, read: Read
) -> tuple[Source, Source]:
    """Return the program at `path`, and what our cell makes of it.

    What nothing uses any more goes, but not out of an exercise's frame: what the reader
    is going to write may use all that is there.
    """
    text = read(path)
    if text is None:
        raise ProgramError(f"there is no {path}: run the cell that writes it")
    lesson = _lesson(text)
    merged = _merged(_parts(_replaced(lesson, changes, path), path), ours)
    is_frame = Path(path).parent.name == FRAMES
    source = merged if is_frame else _without_unused(merged, ours)
    return _parts(lesson, path), source


def _first_cell(path: str, ours: Source, read: Read) -> tuple[Source, Source]:
    """Return the file at `path`, if its other cells count, and what our cell begins.

    A cell with `main` is whole. One without begins anew, and keeps what has a name.
    """
    if "main" in ours.names:
        return Source(), _without_unused(_merged(Source(), ours), ours)
    try:
        theirs = take_apart(_lesson(read(path) or ""))
    except SyntaxError:  # after a change by hand
        theirs = Source()
    items = [item for item in theirs.items if item.names or "__name__" in item.uses]
    merged = _merged(replace(theirs, items=items), ours)
    return theirs, _without_unused(merged, ours)


def _further_cell(path: str, ours: Source, read: Read) -> tuple[Source, Source]:
    """Return the file at `path`, and the same with our cell in it.

    Nothing is left out: a later cell may use it.
    """
    text = read(path)
    if text is None:
        reason = "a cell that begins one has a docstring"
        raise ProgramError(f"there is no {path}: {reason}")
    theirs = _parts(_lesson(text), path)
    return theirs, _merged(theirs, ours)


def _parts(text: str, path: str) -> Source:
    """Return the parts of the program at `path`; ProgramError if it is no Python."""
    try:
        return take_apart(text)
    except SyntaxError as error:
        reason = f"{path} is not valid Python then: {error.msg}"
        raise ProgramError(reason) from None


def _merged(theirs: Source, ours: Source) -> Source:
    """Return our cell's parts and those of the program that it goes on with.

    A guard of our cell takes the place of the program's.
    """
    guarded = any("__name__" in item.uses for item in ours.items)
    items = [
        item
        for item in theirs.items
        if item.names or not (guarded and "__name__" in item.uses)
    ]
    try:
        items = merge(items, ours.items)
    except SourceError as error:
        raise ProgramError(str(error)) from None
    return Source("", joined(theirs.imports, ours.imports), items)


def _without_unused(source: Source, ours: Source) -> Source:
    """Leave out what neither `main` nor our cell uses."""
    if "main" not in source.names:
        return source
    kept = [item for item in source.items if item in ours.items or not item.names]
    roots = {"main", end.OPTIONS}.union(*(item.uses for item in kept))
    names = reached(source.items, roots)
    items = [item for item in source.items if item in kept or item.names & names]
    return Source("", _used(source.imports, items, ours.imports), items)


def _with_further(source: Source, so_far: Source, names: Collection[str]) -> Source:
    """Return the first cell's parts, and those `names` that are in the file so far."""
    items = [item for item in so_far.items if not item.names.isdisjoint(names)]
    if not items:
        return source
    imports = joined(source.imports, so_far.imports)
    return Source("", imports, merge(source.items, items))


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


def _docstring(theirs: Source, ours: Source, order: Order, notebook: str) -> str:
    """Return the cell's docstring, or that of the program, as a page of usage.

    Raises:
        ProgramError: if it would be that of another program.
    """
    if ours.docstring or "Written by" not in theirs.docstring:
        return _usage(ours.docstring or theirs.docstring, order, notebook)
    if order.other:
        raise ProgramError(f"a docstring has to say what is new beside {order.other}")
    return theirs.docstring


def _used(
    imports: Iterable[Import], items: Iterable[Item], always: Sequence[Import] = ()
) -> list[Import]:
    """Return those of `imports` that `items` use, and those that are there always."""
    used = set[str]().union(*(item.uses for item in items))
    return [i for i in imports if i in always or i.bound in used or i.name == "*"]


def with_end(source: Source, path: str) -> str:
    """Return the file: what the cells say, and below the rule line its end.

    What of the end the cells define themselves they keep. Cells with a guard of their
    own that use nothing of the end have none.
    """
    if "main" not in source.names:  # a further cell will bring it
        return source.text + "\n"
    takes = _parameters(source.names["main"])
    guards = [item for item in source.items if "__name__" in item.uses]
    rest = replace(source, items=[i for i in source.items if i not in guards])
    blocks, more = take_apart(end.BLOCKS), list[Item]()
    if takes:
        if "run" in source.names:
            raise ProgramError(f"{path}: `run` is in its end; take another name")
        if takes not in end.JOINS:
            takes_what = " or ".join(f"main({known})" for known in end.JOINS)
            raise ProgramError(f"{path}: there is main({takes}), not {takes_what}")
        join = end.JOINS[takes]
        if join == "workers()" and end.OPTIONS in source.names:
            join = f"workers(**{end.OPTIONS})"
        run = take_apart(end.RUN.format(join=join, given=takes))
        blocks.imports += run.imports
        more = run.items
    used = set[str]().union(*(item.uses for item in (*rest.items, *more)))
    names = reached(blocks.items, used)
    needed = [i for i in blocks.items if i.names & names - source.names.keys()] + more
    rest.imports = joined(_used(blocks.imports, needed), rest.imports)
    guard = end.GUARD.format(start="run" if takes else "main").strip()
    own = [item.text for item in guards]
    if own and not needed:  # a script that is whole as its cells show it
        return "\n\n\n".join([rest.text, *own]) + "\n"
    parts = [rest.text, end.RULE_LINE, *(item.text for item in needed)]
    parts += own or [guard]
    return "\n\n\n".join(parts) + "\n"


def _parameters(main: Item) -> str:
    """Return what `main` takes, as it would be written."""
    for node in ast.walk(ast.parse(main.text)):
        if isinstance(node, ast.FunctionDef) and node.name == "main":
            return ast.unparse(node.args)
    return ""


def _usage(docstring: str, order: Order, notebook: str) -> str:
    """Return a docstring with the command, unless it has one, and the notebook."""
    parts = re.fullmatch(r"(\w*)(\"\"\"|'''|\"|')(.*)\2", docstring, re.DOTALL)
    prefix, text = (parts[1], parts[3].strip()) if parts else ("", "")
    paragraphs = text.split("\n\n")
    if not re.search(rf"^    .*{re.escape(order.path)}", text, re.MULTILINE):
        command = f"    torchrun --standalone {order.options} {order.path}"
        paragraphs.insert(1, command)
    if notebook:
        paragraphs.append(f"Written by {notebook}.")
    return prefix + '"""' + "\n\n".join(paragraphs) + '\n"""'


@dataclass(frozen=True)
class Replacement:
    """Lines of another program, and those that stand there instead."""

    old: list[str]
    new: list[str]


def _changes(lines: Sequence[str]) -> tuple[list[str], list[Replacement]]:
    """Return a cell's lines without those of its changes, and the changes.

    Raises:
        ProgramError: if a change stands right beside other lines.
    """
    rest, changes = list(lines), list[Replacement]()
    for filled, group in groupby(enumerate(lines), lambda pair: bool(pair[1].strip())):
        block = list(group)
        if filled and any(line[0] in "+-" for _, line in block):
            if any(line[0] not in "+- " for _, line in block):
                reason = "lines that begin with - and + need blank lines around them"
                raise ProgramError(f"{reason}: {block[0][1]}")
            old = [line[1:] for _, line in block if line[0] in "- "]
            new = [line[1:] for _, line in block if line[0] in "+ "]
            changes.append(Replacement(old, new))
            for number, _ in block:
                rest[number] = ""
    return rest, changes


def _replaced(text: str, changes: Sequence[Replacement], path: str) -> str:
    """Return the program at `path` with its lines replaced.

    Raises:
        ProgramError: if lines are not there, or not only once.
    """
    lines = text.splitlines()
    for change in changes:
        size = len(change.old)
        starts = [n for n in range(len(lines)) if lines[n : n + size] == change.old]
        if not size:
            reason = "a line with + needs a line beside it that is there"
            raise ProgramError(f"{reason}: {change.new[0]}")
        if len(starts) != 1:
            old = "\n".join(change.old)
            reason = f"{path} has these lines {len(starts)} times, not once"
            raise ProgramError(f"{reason}:\n{old}")
        lines[starts[0] : starts[0] + size] = change.new
    return "\n".join(lines)


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
    rest, changes = _changes(cell.splitlines())
    left = [each for each in rest if each.strip()]
    if left or not changes:
        rule = "lines with - go, lines with + come, and those beside them stay"
        raise ProgramError("; not so: ".join([rule, *left[:1]]))
    if (text := _read(path)) is None:
        raise ProgramError(f"there is no {path}: run the cell that writes it")
    written.write(copy, _replaced(text, changes, path) + "\n")
    text = f"The whole program: {copy}"
    html = f"<small>{escape(text)}</small>"
    display({"text/plain": text, "text/html": html}, raw=True)


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
