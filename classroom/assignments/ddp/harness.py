"""Trains a small network with the student's DataParallel, and tells what came of it.

The judge computes the truth with the same `Net`, in one process and without wrapping.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

BACKWARD_WITHIN = 15.0  # seconds; it takes milliseconds
SENT_WITHIN = 5.0  # seconds, for what is due; likewise
Note = Callable[[str, int], None]  # a word and a number: what has happened


class Net(nn.Module):
    """Linear layers with tanh after each, then as many heads as the caller names.

    Args:
        sizes: the widths, from the input to the last layer's output.
        dtype: of all parameters, such as "float32".
        frozen: indices of layers that are not trained.
        tied: pairs of layers of one shape: the first uses the second's weight.
        heads: how many linear maps to one number there are; see `forward`.
        norm: whether there is a BatchNorm, which has buffers, after the layers.
    """

    def __init__(
        self,
        sizes: list[int],
        dtype: str = "float32",
        frozen: Sequence[int] = (),
        tied: Sequence[Sequence[int]] = (),
        heads: int = 0,
        norm: bool = False,
    ):
        super().__init__()
        kind, last = getattr(torch, dtype), sizes[-1]
        layers = [nn.Linear(a, b, dtype=kind) for a, b in pairwise(sizes)]
        to_one = [nn.Linear(last, 1, dtype=kind) for _ in range(heads)]
        self.layers, self.heads = nn.ModuleList(layers), nn.ModuleList(to_one)
        self.norm = nn.BatchNorm1d(last, dtype=kind) if norm else nn.Identity()
        for one, other in tied:
            self.layers[one].weight = self.layers[other].weight
        for layer in frozen:
            self.layers[layer].requires_grad_(False)

    def forward(self, x: torch.Tensor, heads: Sequence[int] = ()) -> torch.Tensor:
        """Return (batch, len(heads)), or without heads the last layer's output."""
        for layer in self.layers:
            x = torch.tanh(layer(x))
        x = self.norm(x)
        return torch.cat([self.heads[h](x) for h in heads], dim=1) if heads else x


def loss(
    model: nn.Module, x: torch.Tensor, y: torch.Tensor, heads: list[int]
) -> torch.Tensor:
    out = model(x, heads)
    return F.mse_loss(out, y[:, : out.shape[1]])


def flat(tensors: Iterable[torch.Tensor]) -> np.ndarray:
    """All numbers of `tensors` in a row, float64."""
    rows = [t.detach().cpu().double().flatten() for t in tensors]
    return torch.cat([torch.zeros(0, dtype=torch.float64), *rows]).numpy()


def fill(tensors: Iterable[torch.Tensor], numbers: np.ndarray) -> None:
    """Put `numbers`, one row, into `tensors`."""
    for tensor in tensors:
        row, numbers = np.split(numbers, [tensor.numel()])
        values = torch.from_numpy(row.copy()).view(tensor.shape)
        tensor.data.copy_(values)


def trained(module: nn.Module) -> list[nn.Parameter]:
    return [p for p in module.parameters() if p.requires_grad]


def gradients(module: nn.Module) -> list[torch.Tensor]:
    """Of what is trained; zeros where there is none."""
    all_of_them = ((p, p.grad) for p in trained(module))
    return [torch.zeros_like(p) if grad is None else grad for p, grad in all_of_them]


def watch_layers(net: Net, passed: Callable[[int], None]) -> None:
    """Call passed(i) when the gradient leaves layer i towards the input."""

    def watch(number: int) -> Callable[[nn.Module, tuple], None]:
        def before_forward(layer: nn.Module, args: tuple) -> None:
            if args[0].requires_grad:
                args[0].register_hook(lambda gradient: passed(number))

        return before_forward

    for number, layer in enumerate(net.layers):
        layer.register_forward_pre_hook(watch(number))


def wait_for(files: list[Path]) -> bool:
    """Wait until all `files` are there; False if that takes too long."""
    end = time.monotonic() + BACKWARD_WITHIN
    while not all(file.exists() for file in files):
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


class Training:
    """The steps of a plan on this rank, and what the judge wants to see of them.

    Args:
        model: the student's DataParallel around `net`.
        given: the inputs, see `main`.
        note: called with a word and a number when something happens.
        sizes: the bytes of each call so far; it grows.
        folder: which all ranks see.
    """

    def __init__(
        self,
        model: Any,
        net: Net,
        given: dict,
        note: Note,
        sizes: list[int],
        folder: Path,
    ):
        self.model, self.net, self.note, self.folder = model, net, note, folder
        self.sizes, self.due, self.before = sizes, given["due"], 0
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.device = next(net.parameters()).device
        self.x, self.y = (torch.from_numpy(given[n]).to(self.device) for n in "xy")
        self.optimizer = torch.optim.SGD(trained(net), lr=given["rate"])
        self.grads: list[np.ndarray] = []
        self.params: list[np.ndarray] = []
        self.waits = False

    def step(self, number: int, micro_batches: list[dict]) -> None:
        """Backward for each micro-batch, the last one outside no_sync(); then step."""
        self.optimizer.zero_grad()
        self.before, last = sum(self.sizes), len(micro_batches) - 1
        for micro, plan in enumerate(micro_batches):
            # A body that raises is part of the plan: its micro-batch is left out.
            quiet = nullcontext() if micro == last else self.model.no_sync()
            with suppress(ZeroDivisionError), quiet:
                x, y = self.x[number, micro], self.y[number, micro]
                error = loss(self.model, x, y, plan["heads"][self.rank]) / len(
                    micro_batches
                )
                if plan["raises"]:
                    raise ZeroDivisionError("a bad batch")
                self.waits = bool(self.due) and micro == last and plan["late"] is None
                self.backward(number, error, plan["late"])
                self.wait_for_due(0)
            self.waits = False
            self.note("backward", 0)
        self.model.finish()
        self.note("finish", number)
        self.keep()
        self.optimizer.step()
        self.params.append(flat(self.net.parameters()))

    def backward(self, number: int, error: torch.Tensor, late: int | None) -> None:
        """error.backward(); rank `late` begins when all others have come through."""
        if late is None:
            return error.backward()
        files = [self.folder / f"{number}_{rank}" for rank in range(self.ranks)]
        if self.rank == late:
            if not wait_for(files[:late] + files[late + 1 :]):
                self.note("held up", number)
        error.backward()
        files[self.rank].touch()

    def passed(self, layer: int) -> None:
        """Be told that backward() has passed a layer."""
        self.wait_for_due(layer)
        self.note("layer", layer)

    def wait_for_due(self, layer: int) -> None:
        """Wait a moment for what is due, which another thread may be sending; once."""
        end = time.monotonic() + SENT_WITHIN
        while self.waits and sum(self.sizes) - self.before < self.due[layer]:
            if time.monotonic() > end:
                self.waits, self.due = False, []
            time.sleep(0.001)

    def keep(self) -> None:
        """Keep the gradients: in a row, zeros where there is none."""
        self.grads.append(flat(gradients(self.net)))
        frozen = [p for p in self.net.parameters() if not p.requires_grad]
        if any(p.grad is not None for p in frozen):
            self.note("stray", 0)


def main() -> None:
    """Inputs: net (arguments of `Net`), params and buffers (rows), bucket_bytes, rate,
    x and y (steps, micro-batches, samples, width), due (by layer the bytes that must
    have been sent by then, or nothing), and plan: for each step and each micro-batch,
    the heads by rank, whether the body raises, and the rank that is late.
    """
    from ranks import RUN_FOLDER, answer, give, inputs, process_group, say, say_calls

    def note(word: str, number: int) -> None:
        say(word, number=number)

    given = inputs()
    sizes = say_calls()
    with process_group() as (_, _, device):
        program = answer("ddp.py")
        net = Net(**given["net"]).to(device)
        fill(net.parameters(), given["params"])
        fill(net.buffers(), given["buffers"])
        say("construct")
        try:
            model = program.DataParallel(net, bucket_bytes=given["bucket_bytes"])
        finally:  # the start may be right before the rest of it is written
            give(start=flat([*net.parameters(), *net.buffers()]))
            say("constructed")
        training = Training(model, net, given, note, sizes, RUN_FOLDER)
        watch_layers(net, training.passed)
        for number, micro_batches in enumerate(given["plan"]):
            training.step(number, micro_batches)
        give(grads=np.array(training.grads), params=np.array(training.params))


if __name__ == "__main__":
    main()
