"""Assignment 3, Resume: a training that goes on after any death, equal in every bit.

Each case is two lives or more, every one a run of its own. Between them the judge holds
the folder, and can damage it. A life is judged by the number of steps it still had to
take and by its last weights; what these should be is computed here, rank by rank in
one process, by a training that never stops.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import torch
from torch import nn

from classroom.engine.assignment import Criteria
from classroom.engine.rig import Outcome, Rig, compare_all
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


# --- the truth ---


@dataclass
class _Rank:
    """What is one rank's alone."""

    dropout: torch.Tensor
    """State of the generator from which dropout draws."""
    noise: torch.Generator


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


def _live(
    rig: Rig, ranks: int, job: dict, before: Outcome | None = None, **more: object
) -> Outcome:
    """Start the training, on what an earlier life has left."""
    given = {"job": job, "plan": None, "look": None, "may_refuse": False} | more
    files = before.files if before else {}
    return rig.run(ranks, given, files=files)


def _end(outcome: Outcome, ranks: int, job: dict, starts: set[int]) -> Verdict:
    """Judge the last life: where it may have begun, and what it has to end with."""
    if problem := outcome.problem("weights", "took"):
        return problem
    for rank, given in enumerate(outcome.outputs):
        begun = job["steps"] - given["took"]
        if begun not in starts:
            wanted = " or ".join(map(str, sorted(starts)))
            told = f"rank {rank} expected to go on from step {wanted}, got {begun}"
            return fail(told)
    verdict = compare_all(truth(ranks, job), outcome, "weights")
    if verdict.state == "fail":
        return fail(f"last weights: {verdict.words}")
    return verdict


def _stop_and_go_on(rig: Rig, ranks: int, job: dict, stop: int) -> Verdict:
    """End well after `stop` steps, where a checkpoint is due, then go on."""
    first = _live(rig, ranks, job | {"steps": stop})
    if problem := first.problem("weights"):
        return problem
    return _end(_live(rig, ranks, job, first), ranks, job, {stop})


# --- criteria ---


def memory(rig: Rig, *, ranks: int, stop: int, steps: int, seed: int = 1) -> Verdict:
    """Weights, momentum and learning rate outlive a stop at the end of an epoch."""
    job = PLAIN | {"momentum": 0.9, "warm_up": 2 * steps, "seed": seed}
    job |= {"steps": steps, "epoch": stop, "save_every": stop}
    return _stop_and_go_on(rig, ranks, job, stop)


def order(
    rig: Rig, *, ranks: int, stop: int, steps: int, epoch: int, seed: int = 1
) -> Verdict:
    """The order of the samples outlives a stop in the middle of an epoch."""
    job = PLAIN | {"shuffle": True, "seed": seed}
    job |= {"steps": steps, "epoch": epoch, "save_every": stop}
    return _stop_and_go_on(rig, ranks, job, stop)


def noise(rig: Rig, *, ranks: int, stop: int, steps: int, seed: int = 1) -> Verdict:
    """Each rank's dropout and jitter outlive a stop at the end of an epoch."""
    job = PLAIN | {"dropout": 0.3, "jitter": 0.2, "seed": seed}
    job |= {"steps": steps, "epoch": stop, "save_every": stop}
    return _stop_and_go_on(rig, ranks, job, stop)


def dies(
    rig: Rig, *, ranks: int, deaths: str, steps: int, save_every: int, seed: int = 1
) -> Verdict:
    """A rank dies by SIGKILL between two checkpoints, and the training ends right.

    Args:
        deaths: as in "rank 1 in step 5, rank 0 …".
    """
    job = PLAIN | {"steps": steps, "epoch": save_every, "save_every": save_every}
    job |= {"seed": seed}
    start, life = 0, None
    for rank, step in re.findall(r"rank (\d+) in step (\d+)", deaths):
        rank, step = int(rank), int(step)
        plan = {"rank": rank, "step": step - start, "how": "at once"}
        life = _live(rig, ranks, job, life, plan=plan)
        if len(life.exit_codes) <= rank or life.exit_codes[rank] != KILLED:
            words = f"rank {rank} never got to step {step} of the training"
            return life.problem() or fail(words)
        start = (step - 1) // save_every * save_every
    return _end(_live(rig, ranks, job, life), ranks, job, {start})


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
    job = PLAIN | {"steps": steps, "epoch": save_every, "save_every": save_every}
    job |= {"seed": seed}
    how, _, count = at.partition("byte ")
    how = "at byte" if count else at
    plan: dict = {"rank": None, "step": step, "how": how}
    plan["with"] = [int(count)] if count else []
    life = _live(rig, ranks, job, plan=plan)
    if not {KILLED, CUT_OFF} & set(life.exit_codes):
        if problem := life.problem():
            return problem
        if how == "at byte":
            return fail(f"after step {step} nobody wrote a file of {count} bytes")
        # Without a rename nobody dies of one; "at byte" has tested the writing.
    starts = {step - save_every, step} if life.failure else {steps}
    return _end(_live(rig, ranks, job, life), ranks, job, starts)


def damaged(
    rig: Rig, *, ranks: int, save_every: int, left: str, seed: int = 1
) -> Verdict:
    """The newest of three checkpoints is damaged: the one before it serves."""
    last, steps = 3 * save_every, 4 * save_every
    job = PLAIN | {"steps": steps, "epoch": save_every, "save_every": save_every}
    job |= {"seed": seed}
    look = last - save_every + 1  # the second checkpoint is there, the third is not
    life = _live(rig, ranks, job | {"steps": last}, look=look)
    if problem := life.problem("weights", "contents"):
        return problem
    old = life.outputs[0]["contents"]
    now = {name: sha256(data).hexdigest() for name, data in life.files.items()}
    new = [name for name, digest in now.items() if old.get(name) != digest]
    if not new:
        return fail(f"the checkpoint of step {last} has left no file")
    for name in new:
        life.files[name] = DAMAGE[left](life.files[name])
    return _end(_live(rig, ranks, job, life), ranks, job, {last - save_every})


def _with_hole(whole: bytes) -> bytes:
    """Return a file of the same length with a block of zeros in its first half."""
    start, size = len(whole) // 3, min(HOLE, len(whole) // 3)
    return whole[:start] + bytes(size) + whole[start + size :]


def refuses(
    rig: Rig, *, ranks: int, then: int, save_every: int = 2, seed: int = 1
) -> Verdict:
    """With another number of ranks each says one sentence, and nothing else happens."""
    job = PLAIN | {"epoch": save_every, "save_every": save_every, "seed": seed}
    life = _live(rig, ranks, job | {"steps": save_every})
    if problem := life.problem("weights"):
        return problem
    before = dict(life.files)
    job["steps"] = 2 * save_every
    life = _live(rig, then, job, life, may_refuse=True)
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
