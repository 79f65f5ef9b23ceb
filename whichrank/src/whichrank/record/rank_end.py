"""What is left of a rank's end, typed: its exception, its own last word, its exit.

Each of them may be missing. A rank that a signal ends writes neither of the first two;
one that is killed together with its proxy has no exit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whichrank.record.files import read_json
from whichrank.record.stacks import Frame, from_lists


@dataclass(frozen=True)
class Error:
    """The exception that ended the main part of a program: raised.json, by rank.py."""

    error: str
    """In one line."""
    traceback: str = ""
    """Nothing if there was no room for it on the disk."""
    frames: Sequence[Frame] = ()
    """Of the program and its libraries, the innermost first."""
    time: float = 0.0
    """When, in seconds since the epoch, as below."""
    before: Sequence[str] = ()
    """The exceptions that led to it."""


@dataclass(frozen=True)
class LastWord:
    """What a rank says when all is done: end.json, by rank.py.

    If it is ended before, what it said when its main part had ended counts: left.json.
    """

    code: int
    """The exit code."""
    time: float | None = None
    """When its main part ended; None if that is not known."""
    frames: Sequence[Frame] = ()
    """Where it left by sys.exit."""
    before: Sequence[str] = ()
    """The exceptions that it handled then."""
    left_group: bool = False
    """Whether it is in no process group any more."""
    joined: bool | None = None
    """Whether it has ever been in one, if that is known."""
    early: bool = False
    """Whether it has said nothing, and left with exit code 0, as by os._exit."""


@dataclass(frozen=True)
class Exit:
    """How the process has ended: exit.json, by proxy.py."""

    code: int | None
    """Negative for a signal; None if it was asked to end, and killed with its proxy."""
    time: float = 0.0
    """When that was seen."""
    asked: float | None = None
    """When it was asked to end, if it was before it had ended."""


@dataclass(frozen=True)
class Handled:
    """An exception that the main thread handles while it waits: by rank.py."""

    error: str
    """In one line."""
    frames: Sequence[Frame] = ()
    """As in `Error`."""


def read_handled(kept: dict | None) -> Handled | None:
    """Return what rank.py tells of the exception that is handled, if one is."""
    return Handled(**_typed(kept)) if kept else None


def read_error(path: Path) -> Error | None:
    """Return what a raised.json tells; None if there is none."""
    return Error(**_typed(kept)) if (kept := read_json(path)) else None


def read_last_word(path: Path) -> LastWord | None:
    """Return what an end.json, or a left.json, tells; None if there is none."""
    return LastWord(**_typed(kept)) if (kept := read_json(path)) else None


def read_exit(path: Path) -> Exit | None:
    """Return what an exit.json tells; None if there is none."""
    kept = read_json(path)
    return Exit(kept["code"], kept["time"], kept["asked"] or None) if kept else None


def _typed(kept: dict) -> dict[str, Any]:
    return kept | {"frames": from_lists(kept.get("frames"))}
