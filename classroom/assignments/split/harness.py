"""Takes batches through the student's Pipeline, and writes down what its stage does.

The judge computes the truth with the same `network`, unsplit, in one process.
"""

import time
import weakref
from collections.abc import Callable, Iterable
from itertools import pairwise
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

ROUNDS = 3  # how often the student's schedule and the lesson's are timed, in turn


def network(widths: list[int]) -> nn.Sequential:
    """The whole network: one layer between each two widths."""
    layers = [nn.Sequential(nn.Linear(a, b), nn.Tanh()) for a, b in pairwise(widths)]
    return nn.Sequential(*layers)


def flat(tensors: Iterable[torch.Tensor]) -> np.ndarray:
    """All numbers of `tensors` in a row, float64."""
    return torch.cat([t.detach().cpu().double().flatten() for t in tensors]).numpy()


def fill(module: nn.Module, numbers: np.ndarray) -> None:
    """Put `numbers`, one row, into the parameters of `module`."""
    for parameter in module.parameters():
        row, numbers = np.split(numbers, [parameter.numel()])
        parameter.data.copy_(torch.from_numpy(row.copy()).view(parameter.shape))


def gradients(module: nn.Module) -> list[torch.Tensor]:
    """Zeros where there is none."""
    pairs = ((p, p.grad) for p in module.parameters())
    return [torch.zeros_like(p) if grad is None else grad for p, grad in pairs]


class _End(torch.autograd.Function):
    """The end of a stage: says when a micro-batch is done with it, and comes back."""

    @staticmethod
    def forward(
        ctx: Any, out: torch.Tensor, watched: "Watched", number: int
    ) -> torch.Tensor:
        ctx.watched, ctx.number = watched, number
        return out.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        ctx.watched.sleep("B", ctx.number)
        return gradient, None, None


class Watched(nn.Module):
    """A stage that keeps a diary, and sleeps where a large one would compute.

    Args:
        layers: the layers of this rank.
        naps: seconds that a forward and a backward take.
    """

    def __init__(self, layers: nn.Module, naps: tuple[float, float] = (0.0, 0.0)):
        super().__init__()
        self.layers, self.naps = layers, dict(zip("FB", naps, strict=True))
        self.clear()

    def clear(self) -> None:
        # ["F" or "B", number of the micro-batch, begin, end]
        self.diary: list[list] = []
        self.count = 0  # of the micro-batches that have come
        self.came: list[weakref.ref] = []  # those that are still in memory
        self.held = 0  # at most so many were, when the next one came

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        number, self.count = self.count, self.count + 1
        self.came = [ref for ref in self.came if ref() is not None]
        self.held = max(self.held, len(self.came))
        self.came.append(weakref.ref(x))
        out = self.layers(x)
        self.sleep("F", number)
        return _End.apply(out, self, number)

    def sleep(self, what: str, number: int) -> None:
        begin = time.monotonic()  # one clock for all processes of a machine
        time.sleep(self.naps[what])
        self.diary.append([what, number, begin, time.monotonic()])


def lesson(stage: Watched, width: int, rows: list[int]) -> None:
    """Lesson 6's schedule, all forwards and then all backwards, on the same stages."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    kept: list[tuple] = []
    works: list[tuple] = []
    for count in rows:
        x = torch.zeros(count, width)
        if rank > 0:
            dist.recv(x, src=rank - 1)
        out = stage(x.requires_grad_())
        kept.append((x, out))
        if rank < last:
            works.append((send_buf := out.detach(), dist.isend(send_buf, dst=rank + 1)))
    for x, out in kept:
        gradient = torch.ones(out.shape)
        if rank < last:
            dist.recv(gradient, src=rank + 1)
        out.backward(gradient)
        if rank > 0:
            works.append((x.grad, dist.isend(x.grad, dst=rank - 1)))
    for _, work in works:
        work.wait()


def timed(stage: Watched, work: Callable[[], object]) -> list[list]:
    """Run `work`, with all ranks beginning together; return the stage's diary."""
    stage.clear()
    dist.barrier()
    work()
    return stage.diary


def train(
    program: ModuleType, stage: Watched, given: dict, device: torch.device
) -> dict[str, object]:
    """Take the batches of each step, then step; return what the judge wants to see."""
    pipeline = program.Pipeline(stage, given["width"])
    optimizer = torch.optim.SGD(stage.parameters(), lr=given["rate"])
    outputs, grads, params, diaries, held = [], [], [], [], []
    for batches in given["plan"]:
        optimizer.zero_grad()
        for number in batches:
            x, target = (
                torch.from_numpy(given[name][number]).to(device)
                if name in given
                else None
                for name in ("x", "target")
            )
            stage.clear()
            out = pipeline.run(given["rows"], x, target)
            diaries.append(stage.diary)
            held.append(stage.held)
            outputs.append(None if out is None else flat([out]))
        grads.append(flat(gradients(stage)))
        optimizer.step()
        params.append(flat(stage.parameters()))
    result: dict[str, object] = {"diaries": diaries, "held": held}
    result |= {"grads": np.array(grads), "params": np.array(params)}
    if all(out is not None for out in outputs):
        result["outputs"] = np.array(outputs)
    return result


def race(program: ModuleType, stage: Watched, given: dict) -> dict[str, list]:
    """Time the student's schedule and the lesson's in turn; return their diaries."""
    rows, pipeline = given["rows"], program.Pipeline(stage, given["width"])
    x, target = (
        torch.from_numpy(given[name][0]) if name in given else None
        for name in ("x", "target")
    )
    mine, theirs = [], []
    for _ in range(ROUNDS):
        theirs.append(timed(stage, lambda: lesson(stage, given["width"], rows)))
        mine.append(timed(stage, lambda: pipeline.run(rows, x, target)))
    return {"mine": mine, "theirs": theirs}


def main() -> None:
    """Inputs: task; for "cut" the questions, [layers, ranks] each; else widths (of this
    stage), width (what comes in), params, rows, rate, x (batches, samples, width) on
    the first rank, target on the last one, and by step the batches to take, or naps.
    """
    from ranks import answer, give, inputs, process_group

    given = inputs()
    with process_group() as (_, _, device):
        program = answer("split.py")
        if given["task"] == "cut":
            return give(bounds=[list(program.cut(*q)) for q in given["questions"]])
        if given["task"] == "race":
            device = torch.device("cpu")  # it sleeps there as well as anywhere
        layers = network(given["widths"])
        fill(layers, given["params"])
        stage = Watched(layers, given["naps"]).to(device)
        if given["task"] == "race":
            give(**race(program, stage, given))
        else:
            give(**train(program, stage, given, device))
        dist.barrier()  # who is late with a message finds everybody still there


if __name__ == "__main__":
    main()
