"""How a rank ends: the words for it, from what it leaves to what is said of it.

In the order in which a rank that ends leaves them, each of which may be missing:

raised.json   `Uncaught`   the exception that ended the main part of its program
left.json     `LastWord`   what it will say, now that this part has ended
end.json      `LastWord`   what it says: all is done
exit.json     `Exit`       its exit code, and whether it was asked, as proxy.py saw it

After a signal there is the last one alone, and none if proxy.py was killed as well.
`RankLog` has them as `raised`, `end` and `exit`, and what follows of them as `code`.
Its judge is explain/ends.py: a `Verdict` says when a rank failed, and whom it blames.
The `cause` of that is an `Ended`: it has `Raised`, has `Exited`, or was `Signalled`.
Of where ranks stand, `Left` is the state of one that has ended (explain/states.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whichrank.record.files import read_json
from whichrank.record.stacks import Frame, from_lists


@dataclass(frozen=True)
class Uncaught:
    """The exception that ended the main part of a program: written by program.py."""

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
    """What a rank says when all is done: written by program.py.

    If it is ended before, what it said when its main part had ended counts.
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
    """How the process has ended: written by proxy.py."""

    code: int | None
    """Negative for a signal; None if it was asked to end, and killed with its proxy."""
    time: float = 0.0
    """When that was seen."""
    asked: float | None = None
    """When it was asked to end, if it was before it had ended."""


@dataclass(frozen=True)
class Handled:
    """An exception that the main thread handles while it waits: by answers.py."""

    error: str
    """In one line."""
    frames: Sequence[Frame] = ()
    """As in `Uncaught`."""


def read_handled(kept: dict | None) -> Handled | None:
    """Return what answers.py tells of the exception that is handled, if one is."""
    return Handled(**_typed(kept)) if kept else None


def read_uncaught(path: Path) -> Uncaught | None:
    """Return what a raised.json tells; None if there is none."""
    return Uncaught(**_typed(kept)) if (kept := read_json(path)) else None


def read_last_word(path: Path) -> LastWord | None:
    """Return what an end.json, or a left.json, tells; None if there is none."""
    return LastWord(**_typed(kept)) if (kept := read_json(path)) else None


def read_exit(path: Path) -> Exit | None:
    """Return what an exit.json tells; None if there is none."""
    kept = read_json(path)
    return Exit(kept["code"], kept["time"], kept["asked"] or None) if kept else None


def _typed(kept: dict) -> dict[str, Any]:
    return kept | {"frames": from_lists(kept.get("frames"))}
