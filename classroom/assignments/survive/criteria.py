"""Assignment 8, Survive: kills at moments that are drawn here, and equal in every bit.

Each case is a life or more; see lived.py.
"""

import random
from collections.abc import Iterator

import torch

from classroom.assignments.beside.lived import Given, Lives
from classroom.engine.assignment import Criteria
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


def _one_kill(rig: Rig, ranks: int, job: dict, seed: int) -> Verdict:
    """Kill any rank in one of the steps 4 to 6, again in its next life, and go on."""
    lives = Lives(rig, ranks, GIVEN, job, seed)
    for step in map(int, lives.draw.integers(4, 7, 2)):
        lives.kill(int(lives.draw.integers(ranks)), step)
    return lives.last(range(1, lives.job["steps"]))


# --- criteria ---


def kills(rig: Rig, *, ranks: int, kills: int, seed: int = 1) -> Verdict:
    """Kills cost two steps each at most, and the weights are as if there were none.

    Any rank in any step; the last kill comes in the first step of a life.
    """
    lives = Lives(rig, ranks, GIVEN, {"steps": STEPS}, seed)
    steps = [*map(int, lives.draw.integers(5, 9, kills - 1)), 1]
    for step in steps:
        lives.kill(int(lives.draw.integers(ranks)), step)
    return lives.last(range(sum(steps) - LOST * kills, STEPS))


def order(rig: Rig, *, ranks: int, steps: int, epoch: int, seed: int = 1) -> Verdict:
    """No sample of an epoch comes twice, and the next epochs have their own order."""
    job = {"shuffle": True, "steps": steps, "epoch": epoch}
    return _one_kill(rig, ranks, job, seed)


def optimizer(rig: Rig, *, ranks: int, steps: int, seed: int = 1) -> Verdict:
    """What Adam remembers outlives a kill."""
    return _one_kill(rig, ranks, {"adam": True, "steps": steps}, seed)


def noise(rig: Rig, *, ranks: int, steps: int, seed: int = 1) -> Verdict:
    """Each rank's own noise goes on where it was."""
    return _one_kill(rig, ranks, {"jitter": 0.2, "steps": steps}, seed)


def writing(rig: Rig, *, ranks: int, step: int, at: str, seed: int = 1) -> Verdict:
    """A death while a snapshot is written costs a few steps, and not the run.

    Args:
        at: "at byte 6000" of a file, "before the rename" or "after the rename".
    """
    lives = Lives(rig, ranks, GIVEN, {"steps": step + 10}, seed)
    lives.write(step, at)
    return lives.last(range(max(0, step - LOST_WRITING), step + 11))


def seldom(rig: Rig, *, ranks: int, steps: int, seed: int = 1) -> Verdict:
    """There is a snapshot, and at most one for every two steps."""
    lives = Lives(rig, ranks, GIVEN, {"steps": steps}, seed)
    if (verdict := lives.last({0})).state != "pass":
        return verdict
    most, got = steps // LOST, lives.snapshots
    if not 0 < got <= most:
        return fail(f"1 to {most} snapshots expected in {steps} steps, got {got}")
    return verdict


CRITERIA: Criteria = {
    "kills": kills,
    "order": order,
    "optimizer": optimizer,
    "noise": noise,
    "writing": writing,
    "seldom": seldom,
}
