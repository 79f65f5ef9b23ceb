"""Assignment 3, Resume: a training that goes on after any death, equal in every bit.

Each case is two lives or more, every one a run of its own. Between them the judge holds
the folder, and can damage it. A life is judged by the number of steps it still had to
take and by its last weights; what these should be is computed here, rank by rank in
one process, by a training that never stops.

In the first step of each life the weights get a push that no seed and no number of
steps can give again: what is not in a checkpoint is lost.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from torch import nn

from classroom.engine.assignment import Criteria
from classroom.engine.rig import Outcome, Rig, compare_all
from classroom.engine.serial import as_in_a_rank
from classroom.engine.verdict import PASS, Verdict, fail

PROGRAMS = {"program": "resume.py"}
BATCH, FEATURES = 4, 16
KILLED, CUT_OFF = -9, -25  # SIGKILL, SIGXFSZ
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
# Each criterion asks for one thing: what is switched off here may be forgotten there.
PLAIN = {
    "shuffle": False,
    "momentum": 0.0,
    "warm_up": 1,
    "dropout": 0.0,
    "jitter": 0.0,
}


PARAMETERS = 64 * FEATURES + 64 + 64 * 64 + 64 + 64 + 1
PUSH = 0.01  # the standard deviation of what is added to each weight
Pushes = dict[int, np.ndarray]
"""By step, counted from 1, what is added to the weights after it, (PARAMETERS,)."""


# --- the truth ---


@dataclass
class _Rank:
    """What is one rank's alone."""

    dropout: torch.Tensor
    """State of the generator from which dropout draws."""
    noise: torch.Generator


def truth(ranks: int, job: dict, pushes: Pushes) -> np.ndarray:
    """Return the weights, (PARAMETERS,), after a training that was never stopped."""
    with as_in_a_rank():
        return _train(ranks, job, pushes)


def _train(ranks: int, job: dict, pushes: Pushes) -> np.ndarray:
    torch.manual_seed(job["seed"])
    hidden = nn.Linear(FEATURES, 64), nn.ReLU(), nn.Dropout(job["dropout"])
    model = nn.Sequential(*hidden, nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    count = job["epoch"] * ranks * BATCH
    data = torch.randn(count, FEATURES)
    own = [_new_rank(job["seed"], rank) for rank in range(ranks)]
    generator = torch.Generator().manual_seed(job["seed"])
    optimizer = torch.optim.SGD(model.parameters(), 0.05, job["momentum"])
    for step in range(job["steps"]):
        if step % job["epoch"] == 0:
            order = torch.arange(count)
            if job["shuffle"]:
                order = torch.randperm(count, generator=generator)
            batches = order.view(job["epoch"], ranks, BATCH)
        gradients = [
            _gradient(model, data[batch], own[rank], job["jitter"])
            for rank, batch in enumerate(batches[step % job["epoch"]])
        ]
        mean = torch.stack(gradients).mean(0)
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        nn.utils.vector_to_parameters(mean, grads)
        optimizer.param_groups[0]["lr"] = 0.05 * min(1.0, (step + 1) / job["warm_up"])
        optimizer.step()
        if step + 1 in pushes:
            weights = nn.utils.parameters_to_vector(model.parameters()).detach()
            weights += torch.from_numpy(pushes[step + 1])
            nn.utils.vector_to_parameters(weights, model.parameters())
    return nn.utils.parameters_to_vector(model.parameters()).detach().numpy()


def _new_rank(seed: int, rank: int) -> _Rank:
    dropout = torch.Generator().manual_seed(1000 * seed + rank).get_state()
    return _Rank(dropout, torch.Generator().manual_seed(2000 * seed + rank))


def _gradient(
    model: nn.Module, x: torch.Tensor, own: _Rank, jitter: float
) -> torch.Tensor:
    """Return the gradient, (parameters,), that this rank finds on its batch `x`."""
    target = x.mean(1, keepdim=True)
    x = x + jitter * torch.randn(x.shape, generator=own.noise)
    model.zero_grad()
    torch.set_rng_state(own.dropout)
    nn.functional.mse_loss(model(x), target).backward()
    own.dropout = torch.get_rng_state()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    return torch.cat([grad.flatten() for grad in grads])


# --- lives ---


class Lives:
    """The lives of one training, each of which goes on from what the last one left.

    Args:
        rig: where they run.
        ranks: how many.
        job: arguments of the program's `Job`, without its seed.
        seed: of the case.
    """

    def __init__(self, rig: Rig, ranks: int, job: dict, seed: int):
        self.rig, self.ranks = rig, ranks
        self.draw = rig.draw(seed)
        self.job = PLAIN | job | {"seed": int(self.draw.integers(1, 1_000_000))}
        self.pushes: Pushes = {}
        self.files: dict[str, bytes] = {}

    def live(self, start: int = 0, steps: int | None = None, **more: Any) -> Outcome:
        """Start the training, and return what came of it.

        Args:
            start: the step from which it goes on.
            steps: after how many it ends, if earlier than the job says.
            more: inputs of the harness.
        """
        self.pushes = {step: p for step, p in self.pushes.items() if step <= start}
        push = self.draw.normal(scale=PUSH, size=PARAMETERS).astype(np.float32)
        self.pushes[start + 1] = push
        job = self.job | {"steps": steps or self.job["steps"]}
        return self._run(self.ranks, {"job": job, "push": push} | more)

    def refused(self, ranks: int) -> Outcome:
        """Start it with another number of ranks, which it may refuse."""
        given = {"job": self.job, "push": None, "may_refuse": True}
        return self._run(ranks, given)

    def last(self, starts: set[int]) -> Verdict:
        """Judge the last life: where it may have begun, and what it has to end with."""
        outcome = self._run(self.ranks, {"job": self.job, "push": None})
        if problem := outcome.problem("weights"):
            return problem
        for rank, events in enumerate(outcome.events):
            took = sum(event.get("what") == "step" for event in events)
            begun = self.job["steps"] - took
            if begun not in starts:
                wanted = " or ".join(map(str, sorted(starts)))
                told = f"rank {rank} expected to go on from step {wanted}, got {begun}"
                return fail(told)
        kept = {step: push for step, push in self.pushes.items() if step <= begun}
        expected = truth(self.ranks, self.job, kept)
        verdict = compare_all(expected, outcome, "weights")
        if verdict.state == "fail":
            return fail(f"last weights: {verdict.words}")
        return verdict

    def _run(self, ranks: int, given: dict) -> Outcome:
        ordinary = {"plan": None, "look": None, "may_refuse": False}
        outcome = self.rig.run(ranks, ordinary | given, files=self.files)
        self.files = outcome.files
        return outcome


def _stop_and_go_on(lives: Lives, stop: int) -> Verdict:
    """End well after `stop` steps, where a checkpoint is due, then go on."""
    first = lives.live(steps=stop)
    return first.problem("weights") or lives.last({stop})


# --- criteria ---


def memory(rig: Rig, *, ranks: int, stop: int, steps: int, seed: int = 1) -> Verdict:
    """Weights, momentum and learning rate outlive a stop at the end of an epoch."""
    job = {"momentum": 0.9, "warm_up": 2 * steps}
    job |= {"steps": steps, "epoch": stop, "save_every": stop}
    return _stop_and_go_on(Lives(rig, ranks, job, seed), stop)


def order(
    rig: Rig, *, ranks: int, stop: int, steps: int, epoch: int, seed: int = 1
) -> Verdict:
    """The order of the samples outlives a stop in the middle of an epoch."""
    job = {"shuffle": True, "steps": steps, "epoch": epoch, "save_every": stop}
    return _stop_and_go_on(Lives(rig, ranks, job, seed), stop)


def noise(rig: Rig, *, ranks: int, stop: int, steps: int, seed: int = 1) -> Verdict:
    """Each rank's dropout and jitter outlive a stop at the end of an epoch."""
    job = {"dropout": 0.3, "jitter": 0.2}
    job |= {"steps": steps, "epoch": stop, "save_every": stop}
    return _stop_and_go_on(Lives(rig, ranks, job, seed), stop)


def dies(
    rig: Rig, *, ranks: int, deaths: str, steps: int, save_every: int, seed: int = 1
) -> Verdict:
    """A rank dies by SIGKILL between two checkpoints, and the training ends right.

    Args:
        deaths: as in "rank 1 in step 5, rank 0 …".
    """
    job = {"steps": steps, "epoch": save_every, "save_every": save_every}
    start, lives = 0, Lives(rig, ranks, job, seed)
    for rank, step in re.findall(r"rank (\d+) in step (\d+)", deaths):
        rank, step = int(rank), int(step)
        plan = {"rank": rank, "step": step - start, "how": "at once"}
        life = lives.live(start, plan=plan)
        if len(life.exit_codes) <= rank or life.exit_codes[rank] != KILLED:
            words = f"rank {rank} never got to step {step} of the training"
            return life.problem() or fail(words)
        start = (step - 1) // save_every * save_every
    return lives.last({start})


def writing(
    rig: Rig,
    *,
    ranks: int,
    step: int,
    at: str,
    steps: int,
    save_every: int,
    seed: int = 1,
) -> Verdict:
    """The rank that writes a checkpoint dies while it does; an older one serves.

    Args:
        at: "at byte 6000" of a file, "before the rename" or "after the rename".
    """
    job = {"steps": steps, "epoch": save_every, "save_every": save_every}
    lives = Lives(rig, ranks, job, seed)
    how, _, count = at.partition("byte ")
    how = "at byte" if count else at
    plan: dict = {"rank": None, "step": step, "how": how}
    plan["with"] = [int(count)] if count else []
    life = lives.live(plan=plan)
    if not {KILLED, CUT_OFF} & set(life.exit_codes):
        if problem := life.problem():
            return problem
        if how == "at byte":
            return fail(f"after step {step} nobody wrote a file of {count} bytes")
        # Without a rename nobody dies of one; "at byte" has tested the writing.
    return lives.last({step - save_every, step} if life.failure else {steps})


def damaged(
    rig: Rig, *, ranks: int, save_every: int, left: str, seed: int = 1
) -> Verdict:
    """The newest of three checkpoints is damaged: the one before it serves."""
    last, steps = 3 * save_every, 4 * save_every
    job = {"steps": steps, "epoch": save_every, "save_every": save_every}
    lives = Lives(rig, ranks, job, seed)
    look = last - save_every + 1  # the second checkpoint is there, the third is not
    life = lives.live(steps=last, look=look)
    if problem := life.problem("weights", "contents"):
        return problem
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


def refuses(
    rig: Rig, *, ranks: int, then: int, save_every: int = 2, seed: int = 1
) -> Verdict:
    """With another number of ranks each says one sentence, and nothing else happens."""
    job = {"epoch": save_every, "save_every": save_every, "steps": 2 * save_every}
    lives = Lives(rig, ranks, job, seed)
    life = lives.live(steps=save_every)
    if problem := life.problem("weights"):
        return problem
    before = dict(life.files)
    life = lives.refused(then)
    if problem := life.problem("refused"):
        return problem
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


CRITERIA: Criteria = {
    "memory": memory,
    "order": order,
    "noise": noise,
    "dies": dies,
    "writing": writing,
    "damaged": damaged,
    "refuses": refuses,
}
NEEDS: dict[str, list[str]] = {}
