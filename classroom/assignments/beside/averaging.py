"""Trains a network whose gradients the student's program averages, over the wire.

The judge computes the truth with the same `Net`, in one process. On its way back
through a layer, a gradient waits for the accelerator.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

Accelerator = Callable[[int], float]  # given a layer, returns its factor when it may


class Factor(torch.autograd.Function):
    """x times `ahead`, and the gradient times `back`.

    Both are called with the tensor that has come, and return a number. In this form,
    torch.func's transforms go through it as well.
    """

    @staticmethod
    def forward(x: torch.Tensor, ahead: Any, back: Any) -> torch.Tensor:
        return x * ahead(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: torch.Tensor) -> None:
        ctx.back = inputs[2]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return gradient * ctx.back(gradient), None, None


class Layer(nn.Module):
    """x @ weight, and a bias if there is one."""

    def __init__(self, ins: int, outs: int, kind: torch.dtype, bias: bool):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(ins, outs, dtype=kind))
        self.bias = nn.Parameter(torch.empty(outs, dtype=kind)) if bias else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x @ self.weight
        return x if self.bias is None else x + self.bias


class Net(nn.Module):
    """Layers tanh(x @ weight + bias), then as many heads as the caller names; and a
    buffer that is in no state_dict.

    Args:
        sizes: the widths, from the input to the last layer's output.
        accelerator: is asked for the backward of each layer.
        dtype: of all parameters, such as "float32".
        bias: whether layers have one.
        registered: the layers in the order of `parameters()`, if that is another.
        frozen: layers that are not trained.
        tied: pairs of layers of one shape: the first uses the second's weight.
        heads: how many there are, of one number, two, three, ...; see `forward`.
        norm: whether there is a BatchNorm, which has buffers, after the layers.
    """

    def __init__(
        self,
        sizes: list[int],
        accelerator: Accelerator,
        dtype: str = "float32",
        bias: bool = False,
        registered: Sequence[int] | None = None,
        frozen: Sequence[int] = (),
        tied: Sequence[Sequence[int]] = (),
        heads: int = 0,
        norm: bool = False,
    ):
        super().__init__()
        self.accelerator, self.depth = accelerator, len(sizes) - 1
        kind, shapes = getattr(torch, dtype), list(pairwise(sizes))
        for number in registered or range(self.depth):
            layer = Layer(*shapes[number], kind, bias)
            layer.requires_grad_(number not in frozen)
            self.add_module(f"layer_{number}", layer)
        for one, other in tied:
            weight = self.get_parameter(f"layer_{other}.weight")
            self.get_submodule(f"layer_{one}").weight = weight
        for head in range(heads):
            self.add_module(f"head_{head}", Layer(sizes[-1], 1 + head, kind, False))
        self.norm = nn.BatchNorm1d(sizes[-1]) if norm else nn.Identity()
        self.register_buffer("mask", torch.ones(sizes[-1]), persistent=False)

    def forward(self, x: torch.Tensor, heads: Sequence[int] = ()) -> torch.Tensor:
        """Return these heads side by side, or without heads the last layer's output."""
        for layer in range(self.depth):
            x = torch.tanh(self.get_submodule(f"layer_{layer}")(x))
            x = Factor.apply(x, lambda x: 1, partial(self.back, layer))
        x = self.norm(x)
        if not heads:
            return x
        return torch.cat([self.get_submodule(f"head_{h}")(x) for h in heads], dim=1)

    def back(self, layer: int, gradient: torch.Tensor) -> float:
        return self.accelerator(layer)


def loss(
    net: nn.Module, x: np.ndarray, y: np.ndarray, heads: list[int]
) -> torch.Tensor:
    out = net(torch.from_numpy(x), heads)
    return F.mse_loss(out, torch.from_numpy(y)[:, : out.shape[1]], reduction="sum")


def fill(tensors: Iterable[torch.Tensor], numbers: np.ndarray) -> None:
    """Put `numbers`, one row, into `tensors`."""
    for tensor in tensors:
        row, numbers = np.split(numbers, [tensor.numel()])
        tensor.data.copy_(torch.from_numpy(row.copy()).view(tensor.shape))


def flat(tensors: Iterable[torch.Tensor]) -> np.ndarray:
    """All numbers of `tensors` in a row, float64: no tensor's memory."""
    rows = [t.detach().cpu().double().flatten().numpy() for t in tensors]
    return np.concatenate([np.zeros(0), *rows])


def gradients(net: nn.Module) -> np.ndarray:
    """All in a row; zeros where there is none."""
    trained = [p for p in net.parameters() if p.requires_grad]
    return flat(torch.zeros_like(p) if p.grad is None else p.grad for p in trained)


def hooks(net: nn.Module) -> int:
    """How many hooks its parameters have."""
    kinds = "_backward_hooks", "_post_accumulate_grad_hooks"
    return sum(len(getattr(p, kind) or ()) for p in net.parameters() for kind in kinds)


class Training:
    """The steps of a plan on this rank.

    Args:
        given: the inputs: net (arguments of `Net`), params and buffers (rows), rate,
            x and y (steps, micro-batches, samples, width), and plan, for each step:
            late (a rank), and micro, by micro-batch the heads by rank, and whether its
            body raises.
        line: to the machine.
        rank: which this is.
    """

    def __init__(self, given: dict, line: Any, rank: int):
        self.given, self.line, self.rank = given, line, rank
        self.net = Net(**given["net"], accelerator=line.compute)
        fill(self.net.parameters(), given["params"])
        fill(self.net.buffers(), given["buffers"])

    def take(
        self,
        model: nn.Module,
        no_sync: Callable[[], AbstractContextManager],
        finish: Callable[[], object],
    ) -> dict[str, Any]:
        """Take all steps with the student's model, which contains `net`; return by step
        the gradients and how many hooks there are, for `give`.
        """
        trained = [p for p in self.net.parameters() if p.requires_grad]
        frozen = [p for p in self.net.parameters() if not p.requires_grad]
        optimizer = torch.optim.SGD(trained, lr=self.given["rate"])
        grads, hooked, stray = [], [], False
        for number, plan in enumerate(self.given["plan"]):
            optimizer.zero_grad()
            self.line.ask("meet", number)  # all ranks begin together
            self.passes(number, plan, model, no_sync)
            self.line.ask("settle", -1)
            finish()
            stray |= any(p.grad is not None for p in frozen)
            grads.append(gradients(self.net))
            hooked.append(hooks(self.net))
            optimizer.step()
            print("", flush=True)  # a sign of life
        return {"grads": np.array(grads), "hooks": hooked, "stray": stray}

    def passes(self, number: int, plan: dict, model: nn.Module, no_sync: Any) -> None:
        """Backward for each micro-batch, the last one outside no_sync()."""
        last = len(plan["micro"]) - 1
        for micro, about in enumerate(plan["micro"]):
            # A body that raises is part of the plan: its micro-batch is left out.
            quiet = nullcontext() if micro == last else no_sync()
            with suppress(ZeroDivisionError):
                with quiet:
                    x, y = (self.given[n][number, micro] for n in "xy")
                    error = loss(model, x, y, about["heads"][self.rank]) / (last + 1)
                    if about["raises"]:
                        raise ZeroDivisionError("a bad batch")
                    if plan["late"] == self.rank:
                        self.line.ask("late")
                    error.backward()
                if about["raises"]:
                    raise RuntimeError("no_sync() keeps what its body has raised")
            self.line.order("backward", micro)
        self.line.order("through")
