"""Lines that begin with - and +, as in a diff: what they change of a program."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby


class ProgramError(Exception):
    """A cell makes no program; the message says why. Nothing has been written."""

    def _render_traceback_(self) -> list[str]:
        """Show the message in a notebook, not the frames that led to it."""
        return [f"ProgramError: {self}"]


@dataclass(frozen=True)
class Replacement:
    """Lines of another program, and those that stand there instead."""

    old: list[str]
    new: list[str]


def take_out(lines: Sequence[str]) -> tuple[list[str], list[Replacement]]:
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


def replaced(text: str, changes: Sequence[Replacement], path: str) -> str:
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
