"""What a run may take before it is ended, and what is kept of it."""

from dataclasses import dataclass

SHORT = 20_000  # bytes of output; of longer output the ends are shown
STANDSTILL = 5  # times the seconds of silence that ranks may print and not get on
TICK = 0.01  # seconds between two looks at what goes on
FOLLOW = 5.0  # seconds in which the other nodes may notice that one has failed
LEAVE = 10.0  # seconds that agents have to end which were asked to


@dataclass(frozen=True)
class Limits:
    """The limits of one run, passed to `torchrun` and `python`."""

    silence: float = 120.0
    """Seconds without a sign of life after which a run is ended (watchdog.py).

    It is ended after five times as many although it prints (a thread says that it is
    alive, say), if its main threads do next to nothing and no call is completed."""
    first_sign: float = 45.0
    """The same while ranks import what they need or join, if it is more than `silence`:
    importing torch on a busy machine is slow, and no hang."""
    output: int = 2_000_000_000
    """Bytes that a run may print before it is ended."""
