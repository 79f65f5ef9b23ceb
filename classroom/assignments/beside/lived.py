"""The judge's side of lives.py: a training that never stops, and one that is killed.

Each case is two lives or more, every one a run of its own. Between them the judge holds
the folder. What the weights should be is computed here, rank by rank in one process.

At drawn steps of each life, the first among them, the weights get a push that no seed
and no number of steps can give again: what is not in a checkpoint is lost.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from classroom.assignments.beside.lives import digest
from classroom.assignments.beside.serial import as_in_a_rank
from classroom.engine.rig import Outcome, Rig, compare_all
from classroom.engine.verdict import Decided, Verdict, fail

BATCH, FEATURES = 4, 16
KILLED, CUT_OFF = -9, -25  # SIGKILL, SIGXFSZ
PARAMETERS = 64 * FEATURES + 64 + 64 * 64 + 64 + 64 + 1
PUSH = 0.01  # the standard deviation of what is added to each weight
PUSHED = 3  # of the first steps of a life, that many
AMONG = 6
Pushes = dict[int, np.ndarray]
"""By step, counted from 1, what is added to the weights after it, (PARAMETERS,)."""


@dataclass(frozen=True)
class Given:
    """What an assignment's given program does in its own way."""

    plain: dict
    """Of its `Job`. Each criterion asks for one thing: what is switched off here may be
    forgotten there."""
    noise: int
    """A rank draws its noise by the seed of the job, so many times, and its number."""
    shuffled: Callable[[int, int], Iterator[torch.Tensor]]
    """By seed and count: the order of the samples in each epoch."""


class _Rank:
    """What is one rank's alone: its noise, and where its dropout draws next."""

    def __init__(self, program: Given, seed: int, rank: int):
        self.dropout = torch.Generator().manual_seed(1000 * seed + rank).get_state()
        self.noise = torch.Generator().manual_seed(program.noise * seed + rank)


@as_in_a_rank()
def truth(
    program: Given, ranks: int, job: dict, pushes: Pushes
) -> tuple[list[str], np.ndarray]:
    """Train without a stop, as the program does.

    Returns:
        The digest of the weights before each step, and the last weights.
    """
    torch.manual_seed(job["seed"])
    hidden = nn.Linear(FEATURES, 64), nn.ReLU(), nn.Dropout(job.get("dropout", 0.0))
    model = nn.Sequential(*hidden, nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    weights, digests = [*model.parameters()], []
    count = job["epoch"] * ranks * BATCH
    data = torch.randn(count, FEATURES)
    own = [_Rank(program, job["seed"], rank) for rank in range(ranks)]
    epochs = program.shuffled(job["seed"], count)
    optimizer: torch.optim.Optimizer
    optimizer = torch.optim.SGD(weights, 0.05, job.get("momentum", 0.0))
    if job.get("adam"):
        optimizer = torch.optim.Adam(weights, 0.01)
    for step in range(job["steps"]):
        if step % job["epoch"] == 0:
            order = next(epochs) if job["shuffle"] else torch.arange(count)
            batches = order.view(job["epoch"], ranks, BATCH)
        digests.append(digest(weights))
        gradients = [
            _gradient(model, data[batch], own[rank], job["jitter"])
            for rank, batch in enumerate(batches[step % job["epoch"]])
        ]
        grads = [p.grad for p in weights if p.grad is not None]
        nn.utils.vector_to_parameters(torch.stack(gradients).mean(0), grads)
        if "warm_up" in job:
            rate = 0.05 * min(1.0, (step + 1) / job["warm_up"])
            optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        if step + 1 in pushes:
            vector = nn.utils.parameters_to_vector(weights).detach()
            vector += torch.from_numpy(pushes[step + 1])
            nn.utils.vector_to_parameters(vector, weights)
    digests.append(digest(weights))
    return digests, nn.utils.parameters_to_vector(weights).detach().numpy()


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


class Lives:
    """The lives of one training, each of which goes on from what the last one left.

    Args:
        rig: where they run.
        program: what is given.
        ranks: how many.
        seed: of the case.
        job: arguments of the program's `Job`, without its seed.
    """

    def __init__(
        self, rig: Rig, program: Given, *, ranks: int, seed: int = 1, **job: Any
    ):
        self.rig, self.ranks, self.draw = rig, ranks, rig.draw(seed)
        self.program = program
        self.job = {"shuffle": False, "jitter": 0.0} | program.plain | job
        self.job["seed"] = int(self.draw.integers(1, 1_000_000))
        self.pushes: Pushes = {}
        self.files: dict[str, bytes] = {}
        self.ended = 0  # after how many steps a life has ended well
        self.begun: int | None = 0
        """From which step the last life has gone on; None if from none of them."""

    def live(self, steps: int | None = None, **more: Any) -> Outcome:
        """Start the training, and return what came of it.

        Args:
            steps: after how many it ends, if earlier than the job says.
            more: inputs of the harness.
        """
        others = self.draw.choice(np.arange(2, AMONG + 1), PUSHED - 1, replace=False)
        steps_pushed = [1, *map(int, sorted(others))]
        pushes = self.draw.normal(scale=PUSH, size=(PUSHED, PARAMETERS))
        pushes = pushes.astype(np.float32)
        job = self.job | {"steps": steps or self.job["steps"]}
        given = {"job": job, "pushed": steps_pushed, "pushes": pushes} | more
        empty = not self.files
        outcome = self._run(self.ranks, given)
        told = [e for e in outcome.events[0] if e.get("what") == "begun"]
        if told:
            known = truth(self.program, self.ranks, self.job, self.pushes)[0]
            found = told[0].get("weights")
            self.begun = known.index(found) if found in known else None
            if empty and self.begun != 0:
                raise Decided(fail("a life with an empty folder does not begin anew"))
            start = self.begun or 0
            self.pushes = {s: p for s, p in self.pushes.items() if s <= start}
            steps_now = (start + step for step in steps_pushed)
            self.pushes |= zip(steps_now, pushes, strict=True)
        else:
            if not {KILLED, CUT_OFF} & {*outcome.exit_codes}:
                outcome.must_give()
            self.begun = self.ended  # it should have nothing left to do
            if self.ended < job["steps"]:
                raise Decided(fail("rank 0 takes steps that nobody sees"))
        if not outcome.failure:
            self.ended = job["steps"]
        return outcome

    def refused(self, ranks: int) -> Outcome:
        """Start it with another number of ranks, which it may refuse."""
        nothing = {"job": self.job, "pushed": [], "pushes": np.zeros((0, 0))}
        return self._run(ranks, nothing | {"may_refuse": True})

    def kill(self, rank: int, step: int) -> None:
        """Kill `rank` in this life's step `step`, if it gets there."""
        plan = {"rank": rank, "step": step, "how": "at once"}
        life = self.live(plan=plan)
        if len(life.exit_codes) > rank and life.exit_codes[rank] == KILLED:
            return
        life.must_give()
        words = f"rank {rank} never got to step {step} of its life, to be killed there"
        raise Decided(fail(words))

    def write(self, step: int, at: str) -> Outcome:
        """Let the rank that writes die: "at byte 6000", or "before the rename"."""
        how, _, byte = at.partition("byte ")
        plan: dict = {"rank": None, "step": step, "how": "at byte" if byte else how}
        plan["with"] = [int(byte)] if byte else []
        life = self.live(plan=plan)
        if not {KILLED, CUT_OFF} & set(life.exit_codes):
            life.must_give()  # nobody dies who renames nothing, or writes small files
        return life

    def last(self, starts: Collection[int]) -> Verdict:
        """Judge the last life: where it may have begun, and what it has to end with."""
        outcome = self.live()
        outcome.must_give("weights")
        if self.begun is None:
            told = "goes on with weights that the training without a stop never has"
            return fail(f"last weights: rank 0 {told}")
        if self.begun not in starts:
            wanted = [*map(str, sorted(starts))]
            words = " or ".join(wanted) if len(wanted) < 4 else f"{wanted[0]} or later"
            return fail(f"rank 0 expected to go on from step {words}, got {self.begun}")
        said = [event.get("what") for event in outcome.events[0]]
        self.snapshots = said.count("snapshot")
        expected = truth(self.program, self.ranks, self.job, self.pushes)[1]
        verdict = compare_all(expected, outcome, "weights")
        if verdict.state == "fail":
            return fail(f"last weights: {verdict.words}")
        return verdict

    def _run(self, ranks: int, given: dict) -> Outcome:
        usual = {"plan": None, "look": None, "may_refuse": False}
        outcome = self.rig.run(ranks, usual | given, files=self.files)
        self.files = outcome.files
        return outcome
