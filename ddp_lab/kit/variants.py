"""Change one thing in a program, and show how two programs differ."""

import difflib
from pathlib import Path

from ddp_lab.kit import ROOT

FOLDER = ROOT / "build" / "variants"


def variant(program: str | Path, old: str, new: str) -> str:
    """Write a copy of `program` in which `new` stands for `old`; show the change.

    Args:
        program: path of the program, from the root folder.
        old: text that occurs in it exactly once.
        new: what to put there.

    Returns:
        The copy's path, from the root folder: build/variants/NAME.py.

    Raises:
        ValueError: if `old` does not occur exactly once.
    """
    program = ROOT / program
    text = program.read_text()
    if text.count(old) != 1:
        raise ValueError(
            f"{program.name} has {text.count(old)} times {old!r}, not once"
        )
    FOLDER.mkdir(parents=True, exist_ok=True)
    copy = FOLDER / program.name
    copy.write_text(text.replace(old, new))
    diff(program, copy)
    return str(copy.relative_to(ROOT))


def diff(before: str | Path, after: str | Path) -> None:
    """Print which lines of `before` became which lines of `after`."""
    before, after = ROOT / before, ROOT / after
    texts = [path.read_text().splitlines() for path in (before, after)]
    names = [str(path.relative_to(ROOT)) for path in (before, after)]
    for line in difflib.unified_diff(*texts, *names, n=1, lineterm=""):
        # Line numbers and the files' own headers say nothing that the names do not.
        print(line if not line.startswith("@@") else "")
