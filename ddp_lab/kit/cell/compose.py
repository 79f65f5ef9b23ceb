"""What a cell makes of a program, as text: no file is read or written here.

A cell that begins with a docstring begins a program. One without goes on with the file:
what it defines is added, or takes the place of what has its name. With `--from` a cell
does that to another program, and what nothing uses any more is left out. Lines that
begin with - and +, as in a diff, replace lines inside the other program's functions.
Below a rule line stands what all programs end with.
"""

import ast
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ddp_lab.kit.cell import end
from ddp_lab.kit.cell.changes import ProgramError, Replacement, replaced, take_out
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

NAME, PUZZLE = "program", "puzzle"
"""The magics whose cells write programs; see puzzle.py for the second one."""
FRAMES = "frames"
"""The folder, beside the programs, of what checks an exercise."""
Read = Callable[[str], str | None]
"""Given a program's path as cells say it, its text; None if there is none."""


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
    lines, changes = take_out(cell.splitlines()) if order.other else ([cell], [])
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
    path: str, changes: Sequence[Replacement], ours: Source, read: Read
) -> tuple[Source, Source]:
    """Return the program at `path`, and what our cell makes of it.

    What nothing uses any more goes, but not out of an exercise's frame: what the reader
    is going to write may use all that is there.
    """
    text = read(path)
    if text is None:
        raise ProgramError(f"there is no {path}: run the cell that writes it")
    lesson = _lesson(text)
    merged = _merged(_parts(replaced(lesson, changes, path), path), ours)
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
