"""Assignment 8, Survive: kills at moments that are drawn here, and equal in every bit.

Each case is a life or more; see lived.py.
"""

import random
from collections.abc import Iterator
from typing import Any

import torch

from classroom.assignments.beside.lived import Given, Lives
from classroom.engine.assignment import named
from classroom.engine.rig import Rig
from classroom.engine.verdict import Verdict, fail

PROGRAMS = {"program": "survive.py"}
WORDS = {
    "kills": "{} kills",
    "steps": "{} steps",
    "epoch": "epochs of {}",
    "step": "dies in the next snapshot after step {}",
    "at": "{}",
}
STEPS = 40
LOST = 2  # steps that a kill may cost
LOST_WRITING = 6  # and one in the midst of writing


def _shuffled(seed: int, count: int) -> Iterator[torch.Tensor]:
    shuffler = random.Random(seed)
    while True:
        numbers = list(range(count))
        shuffler.shuffle(numbers)
        yield torch.tensor(numbers)


GIVEN = Given({"epoch": 1, "adam": False}, 1000, _shuffled)


def _one_kill(rig: Rig, **job: Any) -> Verdict:
    """Kill any rank in one of the steps 4 to 6, again in its next life, and go on."""
    lives = Lives(rig, GIVEN, **job)
    for step in map(int, lives.draw.integers(4, 7, 2)):
        lives.kill(int(lives.draw.integers(lives.ranks)), step)
    return lives.last(range(1, lives.job["steps"]))


# --- criteria ---


def kills(rig: Rig, *, kills: int, **more: Any) -> Verdict:
    """Kills cost two steps each at most, and the weights are as if there were none.

    Any rank in any step; the last kill comes in the first step of a life.
    """
    lives = Lives(rig, GIVEN, steps=STEPS, **more)
    steps = [*map(int, lives.draw.integers(5, 9, kills - 1)), 1]
    for step in steps:
        lives.kill(int(lives.draw.integers(lives.ranks)), step)
    return lives.last(range(sum(steps) - LOST * kills, STEPS))


def order(rig: Rig, **given: Any) -> Verdict:
    """No sample of an epoch comes twice, and the next epochs have their own order."""
    return _one_kill(rig, shuffle=True, **given)


def optimizer(rig: Rig, **given: Any) -> Verdict:
    """What Adam remembers outlives a kill."""
    return _one_kill(rig, adam=True, **given)


def noise(rig: Rig, **given: Any) -> Verdict:
    """Each rank's own noise goes on where it was."""
    return _one_kill(rig, jitter=0.2, **given)


def writing(rig: Rig, *, step: int, at: str, **more: Any) -> Verdict:
    """A death while a snapshot is written costs a few steps, and not the run.

    Args:
        at: "at byte 6000" of a file, "before the rename" or "after the rename".
    """
    lives = Lives(rig, GIVEN, steps=step + 10, **more)
    lives.write(step, at)
    return lives.last(range(max(0, step - LOST_WRITING), step + 11))


def seldom(rig: Rig, *, steps: int, **more: Any) -> Verdict:
    """There is a snapshot, and at most one for every two steps."""
    lives = Lives(rig, GIVEN, steps=steps, **more)
    if (verdict := lives.last({0})).state != "pass":
        return verdict
    most, got = steps // LOST, lives.snapshots
    if not 0 < got <= most:
        return fail(f"1 to {most} snapshots expected in {steps} steps, got {got}")
    return verdict


CRITERIA = named(kills, order, optimizer, noise, writing, seldom)
