"""Assignment 8, Survive: kills at moments that are drawn here, and equal in every bit.

Each case is a life or more, every one a run of its own; between them the judge holds
the folder. What the last weights should be is computed here, rank by rank in one
process, by a training that never stops.
"""

import random

import numpy as np
import torch
from torch import nn

from classroom.engine.assignment import Criteria
from classroom.engine.rig import Outcome, Rig, compare_all
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
PLAIN = {"epoch": 1, "shuffle": False, "adam": False, "jitter": 0.0}


# --- the truth ---


def truth(ranks: int, job: dict) -> np.ndarray:
    """Return the weights, (parameters,), after a training that was never stopped."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as each rank has it: the same sums in the same order
    try:
        with torch.random.fork_rng(devices=[]):
            return _train(ranks, job)
    finally:
        torch.set_num_threads(threads)


def _train(ranks: int, job: dict) -> np.ndarray:
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
    return nn.utils.parameters_to_vector(model.parameters()).detach().numpy()


# --- lives ---


def _live(
    rig: Rig,
    ranks: int,
    job: dict,
    before: Outcome | None = None,
    plan: dict | None = None,
) -> Outcome:
    """Start the training, on what an earlier life has left."""
    files = before.files if before else {}
    return rig.run(ranks, {"job": job, "plan": plan}, files=files)


def _kill(
    rig: Rig, ranks: int, job: dict, before: Outcome | None, rank: int, step: int
) -> tuple[Verdict | None, Outcome]:
    """Start it, and kill `rank` in this life's step `step`: no word if that was so."""
    plan = {"rank": rank, "step": step, "how": "at once", "with": []}
    life = _live(rig, ranks, job, before, plan)
    if len(life.exit_codes) > rank and life.exit_codes[rank] == KILLED:
        return None, life
    words = f"rank {rank} never got to step {step} of its life, to be killed there"
    return life.problem() or fail(words), life


def _end(outcome: Outcome, ranks: int, job: dict) -> Verdict:
    """Judge the last life by its weights."""
    if problem := outcome.problem("weights", "took", "snapshots"):
        return problem
    verdict = compare_all(truth(ranks, job), outcome, "weights")
    if verdict.state == "fail":
        return fail(f"last weights: {verdict.words}")
    return verdict


def _one_kill(rig: Rig, ranks: int, job: dict) -> Verdict:
    """Kill any rank in one of the steps 3 to 6, and start again."""
    draw = np.random.default_rng(job["seed"])
    rank, step = int(draw.integers(ranks)), int(draw.integers(3, 7))
    problem, life = _kill(rig, ranks, job, None, rank, step)
    return problem or _end(_live(rig, ranks, job, life), ranks, job)


# --- criteria ---


def kills(rig: Rig, *, ranks: int, kills: int, seed: int = 1) -> Verdict:
    """Kills cost two steps each at most, and the weights are as if there were none."""
    job = PLAIN | {"steps": STEPS, "seed": seed}
    draw = np.random.default_rng(seed)
    steps = [*map(int, draw.integers(5, 9, kills - 1)), 1]
    life = None
    for step in steps:
        rank = int(draw.integers(ranks))
        problem, life = _kill(rig, ranks, job, life, rank, step)
        if problem:
            return problem
    last = _live(rig, ranks, job, life)
    if (verdict := _end(last, ranks, job)).state != "pass":
        return verdict
    for rank, given in enumerate(last.outputs):
        twice = sum(steps) + given["took"] - STEPS
        if not 0 <= twice <= LOST * kills:
            words = f"rank {rank} expected at most {LOST * kills} steps done twice"
            return fail(f"{words}, got {twice}")
    return verdict


def order(rig: Rig, *, ranks: int, steps: int, epoch: int, seed: int = 1) -> Verdict:
    """No sample of an epoch comes twice, and the next epochs have their own order."""
    job = PLAIN | {"shuffle": True, "steps": steps, "epoch": epoch, "seed": seed}
    return _one_kill(rig, ranks, job)


def optimizer(rig: Rig, *, ranks: int, steps: int, seed: int = 1) -> Verdict:
    """What Adam remembers outlives a kill."""
    job = PLAIN | {"adam": True, "steps": steps, "seed": seed}
    return _one_kill(rig, ranks, job)


def noise(rig: Rig, *, ranks: int, steps: int, seed: int = 1) -> Verdict:
    """Each rank's own noise goes on where it was."""
    job = PLAIN | {"jitter": 0.2, "steps": steps, "seed": seed}
    return _one_kill(rig, ranks, job)


def writing(rig: Rig, *, ranks: int, step: int, at: str, seed: int = 1) -> Verdict:
    """The rank that writes a snapshot dies while it does; an older one serves.

    Args:
        at: "at byte 6000" of a file, "before the rename" or "after the rename".
    """
    job = PLAIN | {"steps": step + 10, "seed": seed}
    how, _, count = at.partition("byte ")
    plan: dict = {"rank": None, "step": step, "how": how if not count else "at byte"}
    plan["with"] = [int(count)] if count else []
    life = _live(rig, ranks, job, plan=plan)
    if not {KILLED, CUT_OFF} & set(life.exit_codes):
        if problem := life.problem():
            return problem
        if count:
            return fail(f"after step {step} nobody wrote a file of {count} bytes")
        # Without a rename nobody dies of one; "at byte" has tested the writing.
    last = _live(rig, ranks, job, life)
    if (verdict := _end(last, ranks, job)).state != "pass":
        return verdict
    begun = job["steps"] - last.outputs[0]["took"]
    if begun < step - LOST_WRITING:
        words = f"to go on from step {step - LOST_WRITING} or later"
        return fail(f"rank 0 expected {words}, got {begun}")
    return verdict


def seldom(rig: Rig, *, ranks: int, steps: int, seed: int = 1) -> Verdict:
    """There is at most one snapshot for every two steps."""
    job = PLAIN | {"steps": steps, "seed": seed}
    life = _live(rig, ranks, job)
    if (verdict := _end(life, ranks, job)).state != "pass":
        return verdict
    most, count = steps // LOST, life.outputs[0]["snapshots"]
    if not 0 < count <= most:
        return fail(f"1 to {most} snapshots expected in {steps} steps, got {count}")
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
