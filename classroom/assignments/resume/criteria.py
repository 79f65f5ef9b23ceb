"""Assignment 3, Resume: a training that goes on after any death, equal in every bit.

Between two lives the judge can damage the folder; see lived.py.
"""

import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

import torch

from classroom.assignments.beside.lived import Given, Lives
from classroom.engine.assignment import named
from classroom.engine.rig import Rig
from classroom.engine.verdict import PASS, Verdict, fail

PROGRAMS = {"program": "resume.py"}
WORDS = {
    "steps": "{} steps",
    "stop": "stopped after {}",
    "save_every": "saved every {}",
    "epoch": "epochs of {}",
    "deaths": "{}",
    "step": "dies in the save of step {}",
    "at": "{}",
    "left": "of the newest file {} is left",
    "then": "started again with {}",
}
HOLE = 4096  # bytes: a block of a disk
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "half": lambda whole: whole[: len(whole) // 2],
    "nothing": lambda whole: b"",
    "all but a hole": lambda whole: _with_hole(whole),
}


def _shuffled(seed: int, count: int) -> Iterator[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield torch.randperm(count, generator=generator)


GIVEN = Given({"momentum": 0.0, "warm_up": 1, "dropout": 0.0}, 2000, _shuffled)


def _stop_and_go_on(rig: Rig, stop: int, **job: Any) -> Verdict:
    """End well after `stop` steps, where a checkpoint is due, then go on."""
    lives = Lives(rig, GIVEN, save_every=stop, **job)
    lives.live(steps=stop).must_give("weights")
    return lives.last({stop})


# --- criteria ---


def memory(rig: Rig, *, stop: int, steps: int, **more: Any) -> Verdict:
    """Weights, momentum and learning rate outlive a stop at the end of an epoch."""
    more |= {"momentum": 0.9, "warm_up": 2 * steps, "steps": steps, "epoch": stop}
    return _stop_and_go_on(rig, stop, **more)


def order(rig: Rig, *, stop: int, **more: Any) -> Verdict:
    """The order of the samples outlives a stop in the middle of an epoch."""
    return _stop_and_go_on(rig, stop, shuffle=True, **more)


def noise(rig: Rig, *, stop: int, **more: Any) -> Verdict:
    """Each rank's dropout and jitter outlive a stop at the end of an epoch."""
    return _stop_and_go_on(rig, stop, dropout=0.3, jitter=0.2, epoch=stop, **more)


def dies(rig: Rig, *, deaths: str, save_every: int, **more: Any) -> Verdict:
    """A rank dies by SIGKILL between two checkpoints, and the training ends right.

    Args:
        deaths: as in "rank 1 in step 5, rank 0 …".
    """
    start, lives = 0, Lives(rig, GIVEN, epoch=save_every, save_every=save_every, **more)
    for rank, step in re.findall(r"rank (\d+) in step (\d+)", deaths):
        lives.kill(int(rank), int(step) - start)
        start = (int(step) - 1) // save_every * save_every
    return lives.last({start})


def writing(rig: Rig, *, step: int, at: str, save_every: int, **more: Any) -> Verdict:
    """The rank that writes a checkpoint dies while it does; an older one serves.

    Args:
        at: "at byte 6000" of a file, "before the rename" or "after the rename".
    """
    lives = Lives(rig, GIVEN, epoch=save_every, save_every=save_every, **more)
    died, end = lives.write(step, at).failure, lives.job["steps"]
    starts = (
        {step - save_every, step} if died else {end // save_every * save_every, end}
    )
    return lives.last(starts)


def damaged(rig: Rig, *, save_every: int, left: str, **more: Any) -> Verdict:
    """The newest of three checkpoints is damaged: the one before it serves."""
    last = 3 * save_every
    more |= {"steps": last + save_every, "epoch": save_every, "save_every": save_every}
    lives = Lives(rig, GIVEN, **more)
    look = last - save_every + 1  # the second checkpoint is there, the third is not
    life = lives.live(steps=last, look=look)
    life.must_give("weights", "contents")
    old = life.outputs[0]["contents"]
    now = {name: sha256(data).hexdigest() for name, data in life.files.items()}
    new = [name for name, digest in now.items() if old.get(name) != digest]
    if not new:
        return fail(f"the checkpoint of step {last} has left no file")
    for name in new:
        lives.files[name] = DAMAGE[left](life.files[name])
    return lives.last({last - save_every})


def _with_hole(whole: bytes) -> bytes:
    """Return a file of the same length with a block of zeros in its first half."""
    start, size = len(whole) // 3, min(HOLE, len(whole) // 3)
    return whole[:start] + bytes(size) + whole[start + size :]


def refuses(rig: Rig, *, ranks: int, then: int, seed: int = 1) -> Verdict:
    """With another number of ranks each says one sentence, and nothing else happens."""
    job = {"epoch": 2, "save_every": 2, "steps": 4}
    lives = Lives(rig, GIVEN, ranks=ranks, seed=seed, **job)
    life = lives.live(steps=2)
    life.must_give("weights")
    before = dict(life.files)
    life = lives.refused(then)
    life.must_give("refused")
    for rank, given in enumerate(life.outputs):
        words, wanted = given["refused"], f"a sentence with {ranks} and {then}"
        if words is None:
            return fail(f"rank {rank} expected to refuse in {wanted}, but went on")
        numbers = set(re.findall(r"\d+", str(words)))
        if "\n" in str(words).strip() or not {str(ranks), str(then)} <= numbers:
            return fail(f"rank {rank} expected {wanted}, got {str(words)[:200]!r}")
    if life.files != before:
        return fail("a training that refuses leaves the folder as it was")
    return PASS


CRITERIA = named(memory, order, noise, dies, writing, damaged, refuses)
