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
    copy, changed = FOLDER / program.name, text.replace(old, new)
    copy.write_text(changed)  # which may be `program` itself, changed once more
    _print_diff(program, text, copy, changed)
    return str(copy.relative_to(ROOT))


def diff(before: str | Path, after: str | Path) -> None:
    """Print which lines of `before` became which lines of `after`."""
    before, after = ROOT / before, ROOT / after
    _print_diff(before, before.read_text(), after, after.read_text())


def _print_diff(before: Path, text: str, after: Path, changed: str) -> None:
    names = [str(path.relative_to(ROOT)) for path in (before, after)]
    texts = text.splitlines(), changed.splitlines()
    for line in difflib.unified_diff(*texts, *names, n=1, lineterm=""):
        # Line numbers and the files' own headers say nothing that the names do not.
        print(line if not line.startswith("@@") else "")
