"""Change one thing in a program, and show how two programs differ."""

import builtins
import difflib
import re
from collections.abc import Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from ddp_lab import from_here
from ddp_lab.kit.cell import written
from ddp_lab.kit.cell.display import TEXT
from ddp_lab.kit.words import listed

FOLDER = Path("build", "variants")  # from the folder that a notebook works in
# Backgrounds that let text be read in a light theme and in a dark one.
COLORS = {"+": "rgba(46, 160, 67, 0.2)", "-": "rgba(248, 81, 73, 0.2)"}


def variant(
    program: str | Path, old: str, new: str, folder: str | Path = FOLDER
) -> str:
    """Write a copy of `program` in which `new` stands for `old`; show the change.

    Args:
        program: path of the program.
        old: text that occurs in it exactly once.
        new: what to put there.
        folder: where the copy goes, as SUBJECT/NAME.py; for a lesson that varies the
            program of another one, which must not find it there.

    Returns:
        The copy's path, by default build/variants/SUBJECT/NAME.py.

    Raises:
        ValueError: if `old` does not occur exactly once.
    """
    program = Path(program)
    text = program.read_text()
    if (count := text.count(old)) != 1:
        places = re.finditer(re.escape(old), text)
        at = [str(text.count("\n", 0, each.start()) + 1) for each in places]
        where = f": in lines {listed(at)}" if 1 < count < 10 else ""
        raise ValueError(f"{program.name} has {old!r} {count} times, not once{where}")
    copy = copy_of(program, folder)
    changed = text.replace(old, new)
    path = from_here(copy)
    written.write(path, changed)  # which may be `program` itself, changed once more
    again = from_here(program) == path
    show(Path("as it was") if again else program, text, copy, changed)
    return path


def copy_of(program: str | Path, folder: str | Path = FOLDER) -> Path:
    """Return where a changed copy of a program goes."""
    program = Path(program)
    return Path(folder) / program.parent.name / program.name


def diff(before: str | Path, after: str | Path) -> None:
    """Show which lines of `before` became which lines of `after`."""
    before, after = Path(before), Path(after)
    show(before, before.read_text(), after, after.read_text())


def show(before: Path, text: str, after: Path, changed: str, context: int = 1) -> None:
    """Show how `text`, of a file called `before`, became `changed`, of `after`.

    Args:
        context: how many lines that have not changed to show around those that have.
    """
    texts = text.splitlines(), changed.splitlines()
    names = from_here(before), from_here(after)
    lines = [
        # Line numbers and the files' own headers say nothing that the names do not.
        line if not line.startswith("@@") else ""
        for line in difflib.unified_diff(*texts, *names, n=context, lineterm="")
    ]
    text = "\n".join(lines)
    if "get_ipython" not in vars(builtins):  # no notebook, perhaps no IPython at all
        print(text)
        return
    from IPython.display import display

    display({"text/plain": text, "text/html": _html(lines)}, raw=True)


def _html(lines: Sequence[str]) -> str:
    """Return the lines of a diff: green what is new, red what has gone."""
    parts = [escape("\n".join(lines[:2])) + "\n"]
    for sign, block in groupby(lines[2:], lambda line: line[:1]):
        text = escape("\n".join(line or " " for line in block))
        color = COLORS.get(sign)
        style = f' style="background-color: {color};"' if color else ""
        parts.append(f"<div{style}>{text}</div>")
    return f'<pre style="{TEXT}">{"".join(parts)}</pre>'
