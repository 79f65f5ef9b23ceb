"""Takes steps with the student's Trainer on a GPT; tells what each rank then holds."""

import os
import socket
import stat
import struct
import weakref
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed.tensor import DTensor

from ddp_lab.gpt import GPT, Config


def model(sizes: dict, seed: int) -> GPT:
    """Return the whole model, the same for each rank and for the judge."""
    torch.manual_seed(seed)
    net = GPT(Config(**sizes)).double()
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


class Saved:
    """A tensor that autograd keeps for the backward; counts what is kept at once.

    All micro-batches keep equally many. What a checkpoint computes anew, in the midst
    of a backward, is not counted.
    """

    here: weakref.WeakSet = weakref.WeakSet()
    count = most = 0  # in all; at once

    def __init__(self, tensor: torch.Tensor):
        self.tensor = tensor.detach()
        if torch._C._current_graph_task_id() < 0:  # no backward goes on
            self.here.add(self)
            Saved.count, Saved.most = self.count + 1, max(self.most, len(self.here))


class Steps:
    """Takes the steps of one training; keeps what the judge wants to see."""

    def __init__(self, program: Any, given: dict):
        self.given, self.kept = given, dict[str, Any]()
        whole = model(given["sizes"], given["seed"])
        self.trainer = program.Trainer(whole, given["micro"])
        self.net = self.trainer.net
        self.sgd = torch.optim.SGD(self.net.parameters(), given["rate"], foreach=False)

    def take(self, step: int) -> None:
        """Take a step; keep its loss and norm, and the gradients of the first one."""
        given = self.given
        x, y = (
            torch.from_numpy(given[name][step]) if name in given else None
            for name in ("x", "y")
        )
        self.sgd.zero_grad()
        counted = saved_tensors_hooks(Saved, lambda saved: saved.tensor)
        with counted if given["counts"] else nullcontext():
            loss = self.trainer.backward(x, y)
        if loss is not None:
            self.keep(f"loss {step}", loss)
        if given["limit"]:
            self.keep(f"norm {step}", self.trainer.clip(given["limit"]))
        if not step:
            self.kept["grads"] = self.row("grad")
        self.sgd.step()

    def keep(self, name: str, number: torch.Tensor | float) -> None:
        exact = torch.as_tensor(number, dtype=torch.float64)  # a float, as well
        self.kept[name] = local(exact).reshape(()).numpy().copy()

    def row(self, what: str = "data") -> torch.Tensor:
        """Return this rank's weights or gradients in a row, by their names."""
        found = sorted(self.net.named_parameters())
        parts = (getattr(weight, what) for _, weight in found)
        none = torch.zeros(0, dtype=torch.float64)
        rows = [none if part is None else local(part).flatten() for part in parts]
        return torch.cat([none, *rows])


def main() -> None:
    """Inputs: sizes of the model, the seed of its weights, x (steps, rows, time) on the
    first stage, y on the last one, micro, rate of SGD, limit of the gradients' norm, or
    None; steps; whether it counts what autograd keeps.
    """
    from ranks import answer, give, inputs, process_group
    from tensors import tensor_bytes

    given = inputs()
    with process_group():
        program = answer("gpt3d.py")
        before, held = bytes_sent(), tensor_bytes()
        steps = Steps(program, given)
        for number in range(given["steps"]):
            steps.take(number)
        sent = None if before is None else (bytes_sent() or 0) - before
        give(shapes={n: list(local(p).shape) for n, p in steps.net.named_parameters()})
        give(**steps.kept, weights=steps.row(), sent=sent)
        steps.kept.clear()
        each = Saved.count / given["steps"] / given["micro"]
        give(held=tensor_bytes() - held, flying=Saved.most / each if each else 0.0)
        dist.barrier()  # who is late with a message finds everybody still there


if __name__ == "__main__":
    main()
