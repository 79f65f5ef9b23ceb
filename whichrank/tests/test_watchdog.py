"""When a run has to be ended: what it does in time, and why, and when, it is ended.

Here a run is a row of what its ranks do: `imports 4, joins 1, waits` is one of them.
"""

import math
import re

import pytest

from whichrank.run.limits import STANDSTILL, Limits
from whichrank.run.watchdog import NEXT_LOOK, Pulse, Watchdog

TICK = 0.2  # seconds between two sounds, as in live.py
LOOK = 0.3  # that a look takes
# What a rank does: the part of a core that it uses, calls a second, does it start?
DOES = {
    "imports": (1.0, 0, True),
    "crawls": (0.1, 0, True),  # imports, beside ten others on its core
    "blocks": (0.0, 0, True),  # in a module that sleeps, before it has joined
    "joins": (0.5, 0, True),  # its device gets ready
    "meets": (0.0, 0, True),  # it waits for the others to join
    "computes": (0.8, 0, False),
    "calls": (0.3, 2, False),
    "rarely": (0.3, 1 / 9, False),  # a call every nine seconds
    "waits": (0.003, 0, False),
}


def at(now: float, row: str) -> Pulse:
    """Return what a look tells of a rank by then; its last word lasts for ever."""
    used = done = 0.0
    starts = False
    for word, seconds in re.findall(r"(\w+) ?([\d.]+)?", row):
        lasts = min(now, float(seconds or math.inf))
        core, calls, starts = DOES[word]
        used, done, now = used + core * lasts, done + calls * lasts, now - lasts
        if now <= 0:
            break
    return Pulse(int(done), used, starts)


def said(now: float, prints: list[float]) -> int:
    """Return how much has been printed by then, if lines come at these times."""
    return sum(time <= now for time in prints)


def ended(
    ranks: list[str],
    prints: list[float],
    silence: float,
    first: float,
    until: float = 300.0,
    change=lambda seen: seen,
) -> tuple[float, float | None]:
    """Return when a run is ended, and after how many idle seconds."""
    dog, now = Watchdog(Limits(silence=silence, first_sign=first), 0.0), 0.0
    while now < until:
        now += TICK
        dog.hear(now, said(now, prints))
        if dog.due(now):
            now += LOOK
            seen = {str(rank): at(now, row) for rank, row in enumerate(ranks)}
            dog.hear(now, said(now, prints))
            if stop := dog.see(now, change(seen)):
                return now, stop
    return now, None


ALWAYS = [n * 0.5 for n in range(1, 700)]
EVERY_9 = [n * 9.0 for n in range(1, 40)]


@pytest.mark.parametrize(
    "ranks, prints, silence, first, seconds, since",
    [
        # Silence: `since` is when the last sign of life was, or a start was over.
        (["waits"], [], 10, 45, 10, 0),
        (["waits"], [7, 14], 10, 45, 10, 14),
        (["computes"], [3], 10, 45, 10, 3),
        (["computes"] * 3, [], 10, 45, 10, 0),
        (["waits"], EVERY_9[:3], 10, 45, 10, 27),
        (["waits"], [], 120, 45, 120, 0),
        (["waits"], [], 10, 0, 10, 0),
        (["waits"], [], 1, 45, 1, 0),
        # Calls are signs of life: of whichever rank, between whichever looks.
        (["calls"], [], 10, 45, None, 0),
        (["calls", "waits"], [], 10, 45, None, 0),
        (["rarely"], [], 10, 45, None, 0),
        (["calls 30, waits"], [], 10, 45, 10, 30),
        (["calls 30, computes", "calls 40, waits"], [], 10, 45, 10, 40),
        (["calls 2, waits"], [20], 30, 45, 30, 20),
        # Who starts has time: until the first sign of life, or again after each.
        (["imports 20, waits"], [], 5, 45, 5, 20),
        (["crawls 40, waits"], [], 5, 45, 5, 40),
        (["crawls 30, calls"], [], 5, 45, None, 0),
        (["crawls 40, calls"], [], 1, 45, None, 0),
        (["imports"], [], 5, 45, 45, 0),
        (["imports"], [10], 5, 45, 45, 10),
        (["imports"], [], 5, 0, 5, 0),
        (["imports"], [], 60, 45, 60, 0),
        (["imports 4, joins 20, calls 9, waits"], [], 5, 45, 5, 33),
        (["meets", "crawls 30, joins 2, waits"], [], 5, 45, 5, 32),
        (["waits", "imports 20, waits"], [], 5, 45, 5, 20),
        # What does not compute does not start, nor does what has joined.
        (["blocks"], [], 6, 45, 6, 0),
        (["imports 4, blocks"], [], 6, 45, 6, 4),
        (["imports 4, meets", "imports 4, waits"], [], 6, 45, 6, 4),
        (["meets", "computes"], [], 6, 45, 6, 0),
        (["calls 4, waits", "calls 4, computes"], [4], 6, 45, 6, 4),
        # A standstill: it prints.
        (["waits"], ALWAYS, 2, 45, 10, 0),
        (["waits"] * 4, ALWAYS, 10, 45, 50, 0),
        (["calls 30, waits"], ALWAYS, 10, 45, 50, 30),
        (["computes 30, waits"], EVERY_9, 10, 45, 50, 30),
        (["imports 30, blocks"], ALWAYS, 5, 45, 25, 30),
        (["computes"], ALWAYS, 10, 45, None, 0),
        (["waits", "computes"], ALWAYS, 10, 45, None, 0),
        (["rarely"], ALWAYS, 10, 45, None, 0),
        (["waits"], ALWAYS, math.inf, 45, None, 0),
        # No limit at all.
        (["waits"], [], math.inf, 45, None, 0),
        (["imports"], [], math.inf, 45, None, 0),
    ],
)
def test_a_run_is_ended_in_time(ranks, prints, silence, first, seconds, since):
    when, stop = ended(ranks, prints, silence, first)
    if seconds is None:
        assert stop is None
        return
    assert stop == seconds
    factor = STANDSTILL if seconds == STANDSTILL * silence else 1
    looks = 2 if "imports" in str(ranks) else 1  # until one tells that it is over
    late = looks * (NEXT_LOOK * factor * silence + TICK + LOOK) + TICK + LOOK
    assert since + seconds - 0.01 <= when <= since + seconds + late


def test_who_is_too_busy_to_answer_is_still_known():
    """Its calls are known from before, and no call is completed between two looks."""
    ranks, asked = ["calls 4, computes"], []

    def change(seen):
        asked.append(0)
        return {
            name: Pulse(one.done if len(asked) % 2 else None, one.used)
            for name, one in seen.items()
        }

    when, stop = ended(ranks, [], 8, 45, change=change)
    assert stop == 8 and 12 <= when < 8 + 8


def test_of_a_machine_that_does_not_answer_nothing_is_known():
    def change(seen):
        return {"a node": Pulse(starts=True)}

    assert ended(["calls"], [5], 5, 45, change=change)[1] == 45
    assert ended(["calls"], ALWAYS, 5, 45, change=change)[1] is None


def test_a_program_of_whose_calls_nothing_is_known_may_print_as_long_as_it_likes():
    def change(seen):
        return {name: Pulse(None, one.used, one.starts) for name, one in seen.items()}

    assert ended(["waits"], ALWAYS, 2, 45, change=change)[1] is None
    assert ended(["waits"], [3], 2, 45, change=change)[1] == 2


def test_where_no_rank_is_there_torchrun_has_time():
    for silence, first in ((2, 10), (20, 10)):
        when, stop = ended([], [5], silence, first)
        assert stop == max(silence, first)
        assert 5 + stop <= when <= 5 + stop + 2


def test_ranks_that_are_started_again_are_new_ones():
    dog = Watchdog(Limits(silence=8, first_sign=8), 0.0)
    dog.hear(1.0, 7)
    assert dog.due(2.5) and not dog.due(1.5)
    assert dog.see(2.5, {"0/0": Pulse(40, 9.0)}) is None
    assert dog.see(9.5, {"1/0": Pulse(0, 0.1)}) is None, "seven seconds"
    assert dog.see(11.5, {"1/0": Pulse(0, 0.1)}) == 8


def test_looks_are_few():
    """They cost a rank time: none while it prints, eight in a silence at the most."""
    looks = []

    def change(seen):
        looks.append(0)
        return seen

    ended(["computes"], [n / 2 for n in range(160)], 16, 45, until=80, change=change)
    assert len(looks) <= 80 / (NEXT_LOOK * STANDSTILL * 16)
    looks.clear()
    ended(["waits"], [], 16, 45, change=change)
    assert len(looks) <= 6
