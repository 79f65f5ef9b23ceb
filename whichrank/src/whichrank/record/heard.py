"""What a rank has said of others when it ended, in words of torch.

The error of a connection of the program's own says nothing of other ranks: see
`OF_ITS_OWN`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from whichrank.record.calls import DTYPES, Call
from whichrank.record.torch_words import (
    FINGERPRINT,
    LOOPBACK,
    PARAMETERS,
    SIZES,
    Blames,
    blames,
)


@dataclass(frozen=True)
class Heard:
    """What a rank has said of others."""

    blames: Blames = Blames.ITSELF
    sizes: tuple[int, int] | None = None
    """The bytes that came, and those that were expected."""
    calls: Mapping[int, Call] = field(default_factory=dict)
    """The calls of two ranks that differ, as TORCH_DISTRIBUTED_DEBUG=DETAIL has it."""
    loopback: str = ""
    """The address of its own machine at which it has looked for another."""
    parameters: str = ""
    """How many parameters it has, if DDP has found another number elsewhere."""

    @property
    def gave_up(self) -> bool:
        """Whether it ended because others did not do their part of a call."""
        return self.blames in (Blames.GONE, Blames.OUT_OF_STEP)


def listen(ended: str, logged: str = "") -> Heard:
    """Return what is said of other ranks.

    Args:
        ended: the words in which a rank has ended.
        logged: what it has written last beside them.
    """
    words = f"{ended}\n{logged}"
    sizes, loopback = SIZES.search(words), LOOPBACK.search(words)
    parameters = PARAMETERS.search(words)
    return Heard(
        blames(ended, logged),
        (int(sizes[1]), int(sizes[2])) if sizes else None,
        {int(rank): _call(*call) for rank, *call in FINGERPRINT.findall(words)},
        loopback[1] if loopback else "",
        parameters[1] if parameters else "",
    )


def _call(name: str, shape: str, dtype: str) -> Call:
    sizes = tuple(int(size) for size in shape.split(",") if size.strip().isdecimal())
    dtypes = (DTYPES.get(dtype, dtype),) if dtype else ()
    name = name.lower()
    return Call(name, name, "", 0, (sizes,), dtypes, False, False, None)
