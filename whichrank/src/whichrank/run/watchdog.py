"""When a run has to be ended, by what it has printed, called and computed so far."""

from collections.abc import Mapping
from dataclasses import dataclass

from whichrank.run.limits import STANDSTILL, Limits

# Shares of a core. A rank that uses less than IDLE waits, though it wakes now and then;
# one that uses less than WAITS imports nothing.
IDLE, WAITS = 0.01, 0.05
LEAST = 0.015  # seconds that show that it computes; they are counted in hundredths
# Looks take time, so there are few: after this part of `silence`, then after this one.
FIRST_LOOK, NEXT_LOOK = 1 / 8, 1 / 4


@dataclass(frozen=True)
class Pulse:
    """What a look tells of one process: a rank, or a program of plain python."""

    done: int | None = None
    """A number that changes with each call that it completes; None if it tells none."""
    used: float | None = None
    """The seconds that it has computed; None if that is not known."""
    starts: bool = False
    """Whether it imports what it needs before it has joined a group, or joins one."""


class Watchdog:
    """Tells when a run has to be ended.

    A run is ended when for `silence` seconds nothing it does is a sign of life: output,
    a completed call, a rank that begins, has started, or ends. While there is no rank,
    or ranks import what they need or join their group, `first_sign` counts in place of
    `silence` if it is more. A run that prints all the time but whose ranks neither
    compute nor complete a call is ended after STANDSTILL times `silence`.

    Only a rank that computes counts as starting, not one whose import sleeps, one that
    waits for the others to join, or one that has joined a group already.

    Calls and starts are seen in looks only, which are a fourth of `silence` apart.

    Args:
        limits: what the run may take.
        now: the time, in seconds, as wherever it is given below.
    """

    def __init__(self, limits: Limits, now: float):
        self.silence = limits.silence
        self.first = max(limits.silence, limits.first_sign)
        self.bytes = 0
        self.done: dict[str, int] = {}  # by process, as are
        self.used: dict[str, float | None] = {}
        self.sign = self.moved = self.looked = now
        """When there was a sign of life, ranks got on, and the last look was."""
        self.starting = False
        """Whether ranks started at the last look."""
        self.quiet = now
        """Since when nothing happens: since `sign`, or since their start was over."""
        self.next = now + FIRST_LOOK * self.silence

    def hear(self, now: float, count: int) -> None:
        """Hear how many bytes have been a sign of life up to now."""
        if count != self.bytes:
            self.bytes, self.sign, self.quiet = count, now, now
            self.next = now + FIRST_LOOK * self.silence

    def due(self, now: float) -> bool:
        """Tell whether it is time for a look at the ranks; one that prints moves it."""
        latest = self.looked + NEXT_LOOK * STANDSTILL * self.silence
        return now >= min(self.next, latest)

    def see(self, now: float, pulses: Mapping[str, Pulse]) -> float | None:
        """Take note of a look; return the seconds that were too many, if they were.

        Args:
            now: when the look was over.
            pulses: the processes, by any name that stays.
        """
        self._note(now, pulses)
        limit, since = self.silence, self.quiet
        if self.starting:
            limit, since = self.first, self.sign
        if now >= since + limit:
            return limit
        self.next = min(now + NEXT_LOOK * self.silence, since + limit)
        limit = STANDSTILL * self.silence
        return limit if now >= self.moved + limit else None

    def _note(self, now: float, pulses: Mapping[str, Pulse]) -> None:
        """Take note of what the processes have done since the last look."""
        busy = [one for name, one in pulses.items() if self._computes(now, name, one)]
        self.used, self.looked = {name: one.used for name, one in pulses.items()}, now
        before = self.starting
        self.starting = not pulses or any(one.starts for one in busy)
        if self._completes(pulses):
            self.sign = self.quiet = self.moved = now
        if self.starting or before:
            self.quiet = now
        if busy or not self.done:  # unknown calls may have been completed
            self.moved = now

    def _completes(self, pulses: Mapping[str, Pulse]) -> bool:
        """Tell whether a process has completed a call since the last look at it."""
        done = {name: one.done for name, one in pulses.items() if one.done is not None}
        before, self.done = self.done, self.done | done
        return any(number != before.get(name, 0) for name, number in done.items())

    def _computes(self, now: float, name: str, one: Pulse) -> bool:
        """Tell whether a process has computed since the last look; it may, unseen."""
        before = self.used.get(name, 0.0)
        if one.used is None or before is None:
            return True
        least = (WAITS if one.starts else IDLE) * (now - self.looked)
        return one.used - before > max(LEAST, least)
