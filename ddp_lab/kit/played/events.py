"""Sentences that say what happens to a run on several nodes, and when.

    rank 3 says "step 7": kill node 0
    2 seconds later: cut node 1
    10 seconds later: mend node 1

Both count from the event before, or from the start: what a rank has said earlier does
not count. A node that is started before anything else happens to it is not there at
first.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from whichrank import Event, Planned

SAYS = re.compile(r"rank (?P<rank>\d+) says (?P<quote>[\"'])(?P<text>.+)(?P=quote)")
LATER = re.compile(r"(?P<seconds>\d+(\.\d+)?) seconds? later")
WHAT_HAPPENS = re.compile(r"(?P<verb>kill|stop|start|cut|mend) node (?P<node>\d+)")
RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?)bit(?:/s)?", re.IGNORECASE)
FACTORS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}
SLOWEST, FASTEST = 1e3, 1e12  # bits per second that a link can be told to carry
ON_A_LINK = ("cut", "mend")  # what needs a network of the nodes' own
WHEN = '`rank 1 says "TEXT"` or `3 seconds later`'
WHAT = "`kill node 1`, `stop node 1`, `start node 1`, `cut node 1` or `mend node 1`"


@dataclass(frozen=True)
class Awaited(Planned):
    """An event, and when it comes."""

    seconds: float = 0.0
    """How long after the event before, or after `says`."""
    speaker: int | None = None
    """The rank that has to say `says` first."""
    says: str = ""


def parse(sentence: str) -> Awaited:
    """Return what a sentence means; ValueError says what would be right."""
    when, colon, what = sentence.rpartition(":")
    when, what = when.strip(), what.strip()
    if not colon:
        raise ValueError(f"the event {sentence!r} is not `WHEN: WHAT`")
    says, later = SAYS.fullmatch(when), LATER.fullmatch(when)
    if not says and not later:
        raise ValueError(f"when is {when!r}? An event begins with {WHEN}")
    happens = WHAT_HAPPENS.fullmatch(what)
    if not happens:
        raise ValueError(f"what is {what!r}? An event ends with {WHAT}")
    verb: Any = happens["verb"]
    return Awaited(
        sentence,
        Event(verb, int(happens["node"])),
        seconds=float(later["seconds"]) if later else 0.0,
        speaker=int(says["rank"]) if says else None,
        says=says["text"] if says else "",
    )


def parse_all(sentences: Sequence[str], nodes: int) -> list[Awaited]:
    """Return what the sentences mean; ValueError says what is wrong.

    Args:
        sentences: the events, in their order.
        nodes: how many there are.
    """
    events = [parse(sentence) for sentence in sentences]
    for each in events:
        if (node := each.event.node) >= nodes:
            last = nodes - 1
            raise ValueError(f"there is no node {node}: the last one is {last}")
    return events


def read(found: dict[str, Any]) -> Awaited:
    """Return an event that was stored as JSON by `dataclasses.asdict`."""
    return Awaited(**found | {"event": Event(**found["event"])})


def absent(events: Sequence[Awaited]) -> set[int]:
    """Return the nodes that are not there at first, because an event starts them."""
    first: dict[int, str] = {}
    for each in events:
        first.setdefault(each.event.node, each.event.verb)
    return {node for node, verb in first.items() if verb == "start"}


def rate(words: str) -> float:
    """Return the bits per second that, say, `100mbit` means."""
    match = RATE.fullmatch(words.strip())
    bits = float(match[1]) * FACTORS[match[2].lower()] if match else 0.0
    if not SLOWEST <= bits <= FASTEST:
        right = "a rate is written 100mbit, 1gbit or 500kbit, from 1kbit to 1000gbit"
        raise ValueError(f"{right}, not {words!r}")
    return bits
