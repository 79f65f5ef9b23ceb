"""What one rank has left in its folder, as it lies there; `RankLog` tells what follows.

Any of it may be missing: a rank may have been killed, or may have removed its folder.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from whichrank.record import names, stacks
from whichrank.record.calls import Call, from_flight
from whichrank.record.files import read, read_json
from whichrank.record.rank_end import (
    Exit,
    Handled,
    LastWord,
    Uncaught,
    read_exit,
    read_handled,
    read_last_word,
    read_uncaught,
)
from whichrank.record.stacks import Frame


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What is known of a rank as its files have it."""

    raised: Uncaught | None = None
    exit: Exit | None = None
    calls: list[Call] = field(default_factory=list)
    groups: Mapping[str, list[int]] = field(default_factory=dict)
    """The ranks of each process group."""
    handles: Handled | None = None
    """The exception that it was handling when it was last asked."""
    threads: Mapping[str, list[Frame]] = field(default_factory=dict)
    """Where those of its threads stood for which Python waits at the end."""
    meets: tuple[str, ...] = ()
    """The address and port at which it was told to meet, and those that it took."""
    beside: Mapping[str, list[Frame]] = field(default_factory=dict)
    """Where its other threads stood, and the processes that it had started."""
    stopped: bool = False
    """Whether it was halted, say by SIGSTOP."""
    trouble: str = ""
    """Why py-spy sees no process on its machine, if that is so."""


@dataclass(frozen=True, kw_only=True)
class RankFiles(Evidence):
    """What one rank has left; see run/inside, proxy.py and probe.py."""

    stdout: str = ""
    stderr: str = ""
    end: LastWord | None = None
    left: LastWord | None = None
    """What it would have said at the end, when its main part had ended."""
    seen: list[Frame] = field(default_factory=list)
    """Where its main thread stood when it was last seen from outside."""
    wrote: list[Frame] = field(default_factory=list)
    """Where it stood by its own word when it was last asked, or SIGTERM reached it."""

    @classmethod
    def read(cls, folder: Path) -> "RankFiles":
        """Return what lies in the folder of a rank; it need not be there."""
        flight = read_json(folder / names.FLIGHT) or read_json(folder / names.ANSWER)
        flight, seen = flight or {}, read_json(folder / names.SEEN) or {}
        threads = flight.get("threads", {}).items()
        return cls(
            stdout=read(folder / names.STDOUT),
            stderr=read(folder / names.STDERR),
            raised=read_uncaught(folder / names.RAISED),
            end=read_last_word(folder / names.END),
            left=read_last_word(folder / names.LEFT),
            exit=read_exit(folder / names.EXIT),
            calls=from_flight(flight),
            groups=flight.get("groups", {}),
            handles=read_handled(flight.get("handles")),
            threads={name: stacks.from_lists(frames) for name, frames in threads},
            meets=tuple(flight.get("meets", ())),
            beside={
                each["name"]: stacks.from_json(each["stack"])
                for each in seen.get("beside", [])
            },
            stopped=seen.get("stopped", False),
            trouble=seen.get("trouble", ""),
            seen=stacks.from_json(read_json(folder / names.SEEN_STACK)),
            wrote=stacks.from_text(read(folder / names.STACK)),
        )
