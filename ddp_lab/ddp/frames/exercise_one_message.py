"""Exercise: average all gradients by one all_reduce instead of one for each tensor.

The model has four tensors of different shapes.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode


def average_gradients(model):
    return None  # the cell's function stands here


class EveryCall(TorchDispatchMode):
    """Counts communication calls of every kind: each passes torch's dispatcher."""

    count = 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        sends = not any(word in str(op) for word in ("wait", "wrap"))
        self.count += "c10d" in op.namespace and sends
        return op(*args, **(kwargs or {}))


def make_model(device):
    """A model with a gradient in every parameter, which no other rank can know."""
    torch.seed()  # a number that only this process has
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).to(device)
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    return model


def means(model):
    """The truth: every gradient's mean over the ranks, one call for each."""
    gradients = [p.grad / dist.get_world_size() for p in model.parameters()]
    for gradient in gradients:
        dist.all_reduce(gradient)  # every rank now holds the mean
    return gradients


def main(rank, world_size, device):
    model = make_model(device)
    expected = means(model)

    with EveryCall() as calls:
        done = average_gradients(model)
    if done is None and not calls.count:  # on all ranks alike: none is left waiting
        print(f"[rank {rank}] not yet", flush=True)
        dist.barrier()  # to leave now would cut off those still joining
        return {"solved": False}

    names = dict(model.named_parameters())
    for (name, parameter), truth in zip(names.items(), expected, strict=True):
        gradient = parameter.grad
        if not torch.allclose(gradient, truth, atol=1e-6):
            worst = (gradient - truth).abs().argmax()
            got, right = gradient.flatten()[worst], truth.flatten()[worst]
            told = f"a number in the gradient of {name} is {got:.4f}"
            raise AssertionError(f"{told}, expected {right:.4f}")
    print(f"[rank {rank}] {len(expected)} gradients, {calls.count} calls", flush=True)
    if calls.count != 1:
        raise AssertionError(f"{calls.count} calls, expected 1")
    return {"solved": True, "calls": calls.count}
