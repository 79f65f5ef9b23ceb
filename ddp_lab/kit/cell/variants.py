"""Change one thing in a program, and show how two programs differ."""

import difflib
from pathlib import Path

from ddp_lab import ROOT, from_root

FOLDER = ROOT / "build" / "variants"


def variant(program: str | Path, old: str, new: str, folder: Path = FOLDER) -> str:
    """Write a copy of `program` in which `new` stands for `old`; show the change.

    Args:
        program: path of the program, from the root folder.
        old: text that occurs in it exactly once.
        new: what to put there.
        folder: where the copy goes, as SUBJECT/NAME.py.

    Returns:
        The copy's path, from the root folder if it is below: by default
        build/variants/SUBJECT/NAME.py.

    Raises:
        ValueError: if `old` does not occur exactly once.
    """
    program = ROOT / program
    text = program.read_text()
    if text.count(old) != 1:
        raise ValueError(
            f"{program.name} has {old!r} {text.count(old)} times, not once"
        )
    copy, changed = folder / program.parent.name / program.name, text.replace(old, new)
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(changed)  # which may be `program` itself, changed once more
    _print_diff(program, text, copy, changed)
    return from_root(copy)


def diff(before: str | Path, after: str | Path) -> None:
    """Print which lines of `before` became which lines of `after`."""
    before, after = ROOT / before, ROOT / after
    _print_diff(before, before.read_text(), after, after.read_text())


def _print_diff(before: Path, text: str, after: Path, changed: str) -> None:
    texts = text.splitlines(), changed.splitlines()
    names = from_root(before), from_root(after)
    for line in difflib.unified_diff(*texts, *names, n=1, lineterm=""):
        # Line numbers and the files' own headers say nothing that the names do not.
        print(line if not line.startswith("@@") else "")
