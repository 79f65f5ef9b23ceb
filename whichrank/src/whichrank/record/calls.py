"""The communication calls of a rank, as PyTorch's flight recorder has kept them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from whichrank.record.stacks import Frame

DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
}
# Every rank has to bring a tensor of the same size to these.
SAME_SIZE = (
    "all_reduce",
    "broadcast",
    "reduce",
    "all_gather",
    "_all_gather_base",  # all_gather_into_tensor
    "reduce_scatter",
    "_reduce_scatter_base",
)
GLOO = "gloo"  # over any other backend a call runs on the device, and its host goes on

Key = tuple[str, str, int, int]
"""A call's group, backend and number, and how often the group was made anew."""


@dataclass(frozen=True)
class Call:
    """One call of the communication library, by one rank."""

    name: str
    """The function that the program or a library called, such as `all_reduce`."""
    does: str
    """What the backend did for it: `all_gather_object` does an `all_gather`."""
    group: str
    """Name of the process group; "0" is the default one."""
    number: int
    """Counts the group's calls from 1, on every rank by itself."""
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    done: bool
    p2p: bool
    frame: Frame | None
    """The program's own line."""
    members: tuple[int, ...] = ()
    """The ranks of the group, where they are known."""
    backend: str = GLOO
    callers: tuple[Frame, ...] = ()
    """The program's lines that have led to its own line, the innermost first."""
    part: str = ""
    """What torch sends by itself: `gradients, in backward`."""
    generation: int = 0
    """How often a group of this name was there before: it may be made anew."""
    in_thread: bool = False
    """Whether another thread than the main one makes it."""

    def __str__(self) -> str:
        """Return, say, `all_reduce of float32 (4,)`."""
        if not self.dtypes:
            return self.name
        more = f" and {len(self.shapes) - 1} more" if len(self.shapes) > 1 else ""
        return f"{self.name} of {self.dtypes[0]} {self.shapes[0]}{more}"

    @property
    def brings(self) -> str:
        """The same, but for a call to which ranks may bring what they like."""
        return str(self) if self.does in SAME_SIZE else self.name

    @property
    def carries(self) -> tuple[tuple[str, ...], tuple[int, ...]]:
        """What has to be the same on all ranks: a `()` and a `(1,)` are."""
        return self.dtypes, tuple(math.prod(shape) for shape in self.shapes)

    @property
    def whole(self) -> str:
        """The same, and what torch sends by it: `(gradients, in backward)`."""
        return self._with_part(str(self))

    @property
    def what(self) -> str:
        """Its name, and what torch sends by it."""
        return self._with_part(self.name)

    def _with_part(self, text: str) -> str:
        return f"{text} ({self.part})" if self.part else text

    @property
    def sends_gradients(self) -> bool:
        """Whether DDP makes it in a backward."""
        return self.part.startswith("gradients")

    @property
    def path(self) -> list[Frame]:
        """The program's lines that have led to the call, the outermost first."""
        return [*reversed(self.callers), *([self.frame] if self.frame else [])]

    @property
    def size(self) -> int:
        """The bytes of its first tensor; 0 if they are not known."""
        dtype = self.dtypes[0] if self.dtypes else ""
        bits = int("".join(filter(str.isdecimal, dtype)) or 8)
        return math.prod(self.shapes[0]) * bits // 8 if self.shapes else 0

    def messages(self, world_size: int) -> set[int]:
        """Return the bytes of a message that gloo may send for it.

        That is its first tensor, or a piece of it: the ring of an all_reduce cuts it
        into two for each rank.
        """
        count = math.prod(self.shapes[0]) if self.shapes else 0
        pieces = 2 * (len(self.members) or world_size)
        return {self.size, math.ceil(count / pieces) * self.size // max(count, 1)}

    @property
    def key(self) -> Key:
        """Which call of which group: equal on all ranks that take part in it.

        The backends of a group count apart.
        """
        return self.group, self.backend, self.number, self.generation

    @property
    def on_device(self) -> bool:
        """Whether the host goes on, and stands where it reads the result."""
        return self.backend != GLOO and not self.done and not self.p2p

    @property
    def kind(self) -> tuple[str, str, int]:
        """What all calls have in common that are made of this, at one line."""
        where = (self.frame.file, self.frame.line) if self.frame else ("", 0)
        return self.what, *where

    def matches(self, other: "Call") -> bool:
        """Return whether both may be one rank's part of the same communication."""
        if self.does != other.does:
            return False
        if self.does not in SAME_SIZE:
            return True
        return self.carries == other.carries


def from_flight(flight: dict) -> list[Call]:
    """Return the calls in a rank's flight.json (see recorder.py), oldest first."""
    groups = flight.get("groups", {})
    return _by_generation([_call(call, groups) for call in flight.get("calls", [])])


def _call(call: dict, groups: dict) -> Call:
    frames = [Frame(*frame) for frame in call["frames"]]
    return Call(
        call["name"],
        call["does"],
        call["group"],
        call["number"],
        tuple(tuple(s) if isinstance(s, list) else (s,) for s in call["shapes"]),
        tuple(DTYPES.get(dtype, dtype) for dtype in call["dtypes"]),
        call["done"],
        call["p2p"],
        frames[0] if frames else None,
        tuple(groups.get(call["group"], ())),
        call.get("backend", GLOO),
        callers=tuple(frames[1:]),
        part=call.get("part", ""),
        in_thread=call.get("in_thread", False),
    )


def _by_generation(calls: list[Call]) -> list[Call]:
    """Return the calls, each with how often a group of its name was there before.

    After destroy_process_group and init_process_group the group "0" counts anew.
    """
    last: dict[tuple[str, str], tuple[int, int]] = {}
    numbered = []
    for call in calls:
        number, generation = last.get((call.group, call.backend), (0, 0))
        if not call.p2p:
            generation += call.number <= number
            last[call.group, call.backend] = call.number, generation
        numbered.append(replace(call, generation=generation))
    return numbered


def with_failed(calls: list[Call], frame: Frame | None) -> list[Call]:
    """Return the calls of a rank that has given up in one of them: that is not done.

    gloo's recorder takes a call that has failed for done.

    Args:
        calls: oldest first.
        frame: the program's own line that raised.
    """
    where = frame and (frame.file, frame.line)
    there = [c for c in calls if c.frame and (c.frame.file, c.frame.line) == where]
    if not there and all(call.done for call in calls):  # it raised in work.wait(), say
        there = calls[-1:]
    return [replace(c, done=False) if c in there[-1:] else c for c in calls]


def first_mismatch(calls: Sequence[Sequence[Call]]) -> dict[int, Call]:
    """Return by rank the earliest call that is not the same on all ranks that made it.

    It is empty if there is none.

    Args:
        calls: by rank, as `from_flight` returns them.
    """
    made: dict[Key, dict[int, Call]] = {}
    for rank, its_calls in enumerate(calls):
        for call in its_calls:
            if not call.p2p:
                made.setdefault(call.key, {})[rank] = call
    # Groups count apart; what is earliest is seen in the order of the rank's own calls.
    for by_rank in made.values():
        first = next(iter(by_rank.values()))
        if not all(call.matches(first) for call in by_rank.values()):
            return by_rank
    return {}


def calls_until(calls: Sequence[Call], key: Key) -> list[Call]:
    """Return the collective calls of a rank before the one with this key, and it."""
    made = [call for call in calls if not call.p2p]
    at = next((n for n, call in enumerate(made) if call.key == key), len(made))
    return made[: at + 1]


def kept_by_all(
    made: dict[int, list[Call]],
) -> tuple[dict[int, list[Call]], Call | None]:
    """Return what ranks have made since the first call that all of them have kept.

    The recorder keeps the last 2000 calls, so whoever makes more of them remembers less
    of what was common. The second value is that call; None if nobody has lost any.

    Args:
        made: collective calls, by rank, oldest first.
    """
    if not any(_has_lost(calls) for calls in made.values()):
        return made, None
    known = [{call.key for call in calls} for calls in made.values()]
    common = set.intersection(*known)
    first = next((c for c in [*made.values()][0] if c.key in common), None)
    if first is None:
        return {rank: [] for rank in made}, None
    since = {}
    for rank, calls in made.items():
        at = next(n for n, call in enumerate(calls) if call.key == first.key)
        since[rank] = calls[at:]
    return since, first


def _has_lost(calls: Sequence[Call]) -> bool:
    """Tell whether the recorder has dropped calls: some group begins in the midst."""
    numbers: dict[tuple[str, str], int] = {}
    for call in calls:
        numbers.setdefault((call.group, call.backend), call.number)
    return any(number > 1 for number in numbers.values())
