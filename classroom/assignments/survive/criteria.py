"""Assignment 8, Survive: kills at moments that are drawn here, and equal in every bit.

Each case is a life or more, every one a run of its own; between them the judge holds
the folder. What the last weights should be is computed here, rank by rank in one
process, by a training that never stops.

In the very first step the weights get a push that no seed and no number of steps can
give again: what no snapshot holds is lost.
"""

import random

import numpy as np
import torch
from torch import nn

from classroom.engine.assignment import Criteria
from classroom.engine.rig import Outcome, Rig, compare_all
from classroom.engine.serial import as_in_a_rank
from classroom.engine.verdict import Verdict, fail

PROGRAMS = {"program": "survive.py"}
WORDS = {
    "kills": "{} kills",
    "steps": "{} steps",
    "epoch": "epochs of {}",
    "step": "dies in the next snapshot after step {}",
    "at": "{}",
}
BATCH, FEATURES = 4, 16
STEPS = 40
LOST = 2  # steps that a kill may cost
LOST_WRITING = 6  # and one in the midst of writing
KILLED, CUT_OFF = -9, -25  # SIGKILL, SIGXFSZ
# Each criterion asks for one thing: what is switched off here may be forgotten there.
PARAMETERS = 64 * FEATURES + 64 + 64 * 64 + 64 + 64 + 1
PUSH = 0.01  # the standard deviation of what is added to each weight
PLAIN = {"epoch": 1, "shuffle": False, "adam": False, "jitter": 0.0}


# --- the truth ---


def truth(ranks: int, job: dict, push: np.ndarray | float) -> np.ndarray:
    """Return the weights, (PARAMETERS,), after a training that was never stopped."""
    with as_in_a_rank():
        return _train(ranks, job, torch.as_tensor(push))


def _train(ranks: int, job: dict, push: torch.Tensor) -> np.ndarray:
    torch.manual_seed(job["seed"])
    layers = nn.Linear(FEATURES, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()
    model = nn.Sequential(*layers, nn.Linear(64, 1))
    count = job["epoch"] * ranks * BATCH
    data = torch.randn(count, FEATURES)
    seeds = [1000 * job["seed"] + rank for rank in range(ranks)]
    noises = [torch.Generator().manual_seed(seed) for seed in seeds]
    shuffler = random.Random(job["seed"])
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), 0.05)
    if job["adam"]:
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for step in range(job["steps"]):
        if step % job["epoch"] == 0:
            order = list(range(count))
            if job["shuffle"]:
                shuffler.shuffle(order)
            batches = torch.tensor(order).view(job["epoch"], ranks, BATCH)
        gradients = []
        for batch, noise in zip(batches[step % job["epoch"]], noises, strict=True):
            x = data[batch]
            target = x.mean(1, keepdim=True)
            x = x + job["jitter"] * torch.randn(x.shape, generator=noise)
            model.zero_grad()
            nn.functional.mse_loss(model(x), target).backward()
            grads = [p.grad for p in model.parameters() if p.grad is not None]
            gradients.append(torch.cat([grad.flatten() for grad in grads]))
        nn.utils.vector_to_parameters(torch.stack(gradients).mean(0), grads)
        optimizer.step()
        if step == 0:
            weights = nn.utils.parameters_to_vector(model.parameters()).detach()
            nn.utils.vector_to_parameters(weights + push, model.parameters())
    return nn.utils.parameters_to_vector(model.parameters()).detach().numpy()


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
        push = self.draw.normal(scale=PUSH, size=PARAMETERS)
        self.push = push.astype(np.float32)
        self.files: dict[str, bytes] | None = None  # none before the first life

    def live(self, plan: dict | None = None) -> Outcome:
        """Start the training, on what an earlier life has left."""
        self.pushed = self.push if self.files is None else None
        given = {"job": self.job, "plan": plan, "push": self.pushed}
        outcome = self.rig.run(self.ranks, given, files=self.files)
        self.files = outcome.files
        return outcome

    def kill(self, rank: int, step: int) -> Verdict | None:
        """Kill `rank` in this life's step `step`; return nothing if that was so."""
        plan = {"rank": rank, "step": step, "how": "at once", "with": []}
        life = self.live(plan)
        if len(life.exit_codes) > rank and life.exit_codes[rank] == KILLED:
            return None
        words = f"rank {rank} never got to step {step} of its life, to be killed there"
        return life.problem() or fail(words)

    def last(self, least: int) -> Verdict:
        """Judge the last life, which has to go on from step `least` or a later one."""
        outcome = self.live()
        if problem := outcome.problem("weights"):
            return problem
        for rank, events in enumerate(outcome.events):
            begun = self.job["steps"] - count(events, "step")
            if begun < least:
                words = f"to go on from step {least} or later"
                return fail(f"rank {rank} expected {words}, got {begun}")
        self.snapshots = count(outcome.events[0], "snapshot")
        # Who begins anew in a later life has lost the push with all the rest.
        push = self.push if begun or self.pushed is not None else 0.0
        verdict = compare_all(truth(self.ranks, self.job, push), outcome, "weights")
        if verdict.state == "fail":
            return fail(f"last weights: {verdict.words}")
        return verdict


def count(events: list[dict], what: str) -> int:
    """Return how often a rank has said that."""
    return sum(event.get("what") == what for event in events)


def _one_kill(rig: Rig, ranks: int, job: dict, seed: int) -> Verdict:
    """Kill any rank in one of the steps 9 to 12, and start again."""
    lives = Lives(rig, ranks, job, seed)
    rank, step = int(lives.draw.integers(ranks)), int(lives.draw.integers(9, 13))
    return lives.kill(rank, step) or lives.last(1)


# --- criteria ---


def kills(rig: Rig, *, ranks: int, kills: int, seed: int = 1) -> Verdict:
    """Kills cost two steps each at most, and the weights are as if there were none.

    Any rank in any step; the last kill comes in the first step of a life.
    """
    lives = Lives(rig, ranks, {"steps": STEPS}, seed)
    steps = [*map(int, lives.draw.integers(5, 9, kills - 1)), 1]
    for step in steps:
        if problem := lives.kill(int(lives.draw.integers(ranks)), step):
            return problem
    return lives.last(sum(steps) - LOST * kills)


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
    lives = Lives(rig, ranks, {"steps": step + 10}, seed)
    how, _, byte = at.partition("byte ")
    plan: dict = {"rank": None, "step": step, "how": how if not byte else "at byte"}
    plan["with"] = [int(byte)] if byte else []
    life = lives.live(plan)
    if not {KILLED, CUT_OFF} & set(life.exit_codes):
        if problem := life.problem():
            return problem
        if byte:
            return fail(f"after step {step} nobody wrote a file of {byte} bytes")
        # Without a rename nobody dies of one; "at byte" has tested the writing.
    return lives.last(step - LOST_WRITING)


def seldom(rig: Rig, *, ranks: int, steps: int, seed: int = 1) -> Verdict:
    """There is a snapshot, and at most one for every two steps."""
    lives = Lives(rig, ranks, {"steps": steps}, seed)
    if (verdict := lives.last(0)).state != "pass":
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
NEEDS: dict[str, list[str]] = {}
