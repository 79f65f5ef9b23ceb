"""Takes steps with the student's Trainer on a GPT whose MLPs ask the judge.

In each MLP the judge multiplies the hidden layer by a number, another one for each
replica, half and step. So the gradients are right only where every rank has taken its
own rows through its own half; and who has asked when, is the schedule.
"""

import os
import socket
import stat
import struct
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.tensor import DTensor

from ddp_lab.gpt import GPT, MLP, Config, loss_of

TIME = 2  # characters of a row, for the tiny model
TINY = {"layers": 2, "width": 8, "heads": 2, "context": TIME}

Piece = Callable[[int, torch.Tensor], torch.Tensor]
"""Does the judge's part of a block: takes its number, and what is in its MLP."""


class Watched(nn.Module):
    """A block's MLP; between its two weights comes the judge's piece."""

    def __init__(self, mlp: MLP, block: int, piece: Piece):
        super().__init__()
        self.up, self.down, self.block, self.piece = mlp.up, mlp.down, block, piece

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.piece(self.block, F.gelu(self.up(x))))


def prints(h: torch.Tensor) -> list[float]:
    """Return a number for each row of a hidden layer, by which it is known again."""
    rows = h.detach().flatten(1)
    wave = torch.arange(rows.size(1), dtype=rows.dtype).cos()
    return [float(f"{value:.10g}") for value in (rows @ wave).tolist()]


def model(sizes: dict, seed: int, piece: Piece) -> GPT:
    """Return the whole model, the same for each rank and for the judge."""
    torch.manual_seed(seed)
    net = GPT(Config(**sizes)).double()
    for number, block in enumerate(net.blocks):
        block.mlp = Watched(block.mlp, number, piece)
    with torch.no_grad():
        for weight in net.parameters():
            if weight.ndim == 1:  # no norm begins with ones
                weight += 0.1 * torch.randn(weight.shape, dtype=weight.dtype)
    return net


def local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of it, which a library may have wrapped."""
    part = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return part.detach()


def bytes_sent() -> int | None:
    """Return the bytes that this process's sockets have sent, by the kernel's count."""
    if not hasattr(socket, "TCP_INFO"):
        return None  # no Linux
    total = 0
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                with socket.fromfd(fd, socket.AF_INET, socket.SOCK_STREAM) as one:
                    info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)
                    total += struct.unpack("120xQ", info)[0]
        except (OSError, struct.error):
            pass  # closed by now, or a socket of another kind
    return total


class Steps:
    """Takes the steps of one training; keeps what the judge wants to see.

    Args:
        given: the inputs; see `main`. The seed is taken out of it: the model is drawn
            before there is a program, and can be drawn by none.
        asks: whether the judge does a piece, or nobody.
    """

    def __init__(self, given: dict, asks: bool = True):
        self.given, self.asks, self.step = given, asks, 0
        self.kept: dict[str, Any] = {}
        # In a list, which is empty once the program has it: then nothing here holds it.
        self.whole = [model(given["sizes"], given.pop("seed"), self.piece)]
        torch.seed()

    def begin(self, program: Any) -> None:
        """Let the program have the model, and take its share."""
        given = self.given
        self.trainer = program.Trainer(self.whole.pop(), given["micro"])
        self.net = self.trainer.net
        self.sgd = torch.optim.SGD(self.net.parameters(), given["rate"], foreach=False)

    def piece(self, block: int, h: torch.Tensor) -> torch.Tensor:
        """Let the judge do its piece of a block."""
        from averaging import Factor
        from ranks import ask, say

        if not self.asks:
            return h
        at = {"step": self.step, "block": block}
        rows = prints(h)
        factor = ask(**at, rows=rows)

        def back(gradient: torch.Tensor) -> float:
            say("back", **at, rows=len(rows))
            return factor

        return Factor.apply(h, lambda h: factor, back)

    def take(self) -> None:
        """Take the next step."""
        given, at = self.given, self.step
        x, y = (
            torch.from_numpy(given[name][at]) if name in given else None
            for name in ("x", "y")
        )
        self.sgd.zero_grad()
        loss = self.trainer.backward(x, y)
        if loss is not None:
            self.keep("loss", torch.as_tensor(loss).detach().double().reshape(()))
        if given["limit"]:
            norm = torch.as_tensor(self.trainer.clip(given["limit"]))
            self.keep("norm", local(norm).double().reshape(()))
        if not given["weigh"]:
            self.keep("grads", self.row("grad"))
        self.sgd.step()
        self.step += 1

    def keep(self, name: str, value: torch.Tensor) -> None:
        self.kept[f"{name} {self.step}"] = value.numpy().copy()

    def row(self, what: str = "data") -> torch.Tensor:
        """Return this rank's weights or gradients in a row, by their names."""
        found = sorted(self.net.named_parameters())
        parts = (getattr(weight, what) for _, weight in found)
        none = torch.zeros(0, dtype=torch.float64)
        rows = [none if part is None else local(part).flatten() for part in parts]
        return torch.cat([none, *rows])


def warm_up(program: Any, given: dict) -> None:
    """Do once what loads and opens more, so that it is not counted: a step of a tiny
    model by the program, and one of whole blocks, whose products need buffers.
    """
    rows = {name: given[name] for name in ("x", "y") if name in given}
    few = {name: data[:1, :, :TIME] for name, data in rows.items()}
    tiny = Steps(given | few | {"sizes": TINY, "seed": 0}, asks=False)
    tiny.begin(program)
    tiny.take()
    whole = model(given["sizes"] | {"layers": 1}, 0, lambda block, h: h)
    (data,) = (torch.from_numpy(data[0]) for data in rows.values())
    loss_of(whole(data), data).backward()


def main() -> None:
    """Inputs: sizes of the model, the seed of its weights, x (steps, rows, time) on the
    first stage, y on the last one, micro, rate of SGD, limit of the gradients' norm, or
    None; weigh, whether memory is measured after the first step; steps.
    """
    from ranks import answer, give, give_back_at_once, inputs, process_group, weigh

    give_back_at_once()
    given = inputs()
    with process_group():
        steps = Steps(given)
        if given["weigh"]:
            weigh()
        program = answer("gpt3d.py")
        if given["weigh"]:
            warm_up(program, given)
            weigh()
        before = bytes_sent()
        steps.begin(program)
        give(shapes={n: list(local(p).shape) for n, p in steps.net.named_parameters()})
        for number in range(given["steps"]):
            steps.take()
            if given["weigh"] and number == 0:
                weigh()
        sent = None if before is None else (bytes_sent() or 0) - before
        give(**steps.kept, weights=steps.row(), sent=sent)
        dist.barrier()  # who is late with a message finds everybody still there


if __name__ == "__main__":
    main()
