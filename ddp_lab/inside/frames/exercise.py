"""Exercise: share a whole network in one message, whatever the types of its tensors.

The network has BatchNorm, so it holds float32 and int64, and one layer in float64:

    [rank 0] not yet
"""

import secrets

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode


def share(tensors):
    return None  # the cell's function stands here


class Counter(TorchDispatchMode):
    """Notes the calls of the process group, and the bytes that this rank gives."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        library, name, _ = str(function).split(".")
        if "c10d" in library and not name.startswith(("wait", "_wrap")):
            tensors = args[0] if isinstance(args[0], list | tuple) else [args[0]]
            self.calls.append((name, sum(tensor.nbytes for tensor in tensors)))
        return function(*args, **(kwargs or {}))


def network(seed, device):
    """Numbers for one seed, some of which no float32 can hold."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.Linear(7, 3).double())
    net[1].num_batches_tracked.fill_(2**60 + seed)
    net[0].weight.data[0, 0] = float("nan")
    net.register_buffer("mask", torch.rand(3, 11) > 0.5)
    net.register_buffer("turned", torch.randn(4, 6).t())  # not in one row of memory
    return net.to(device)


def bits(tensors):
    """The tensors as bytes: equal only if each bit is."""
    rows = [t.detach().contiguous().flatten().view(torch.uint8) for t in tensors]
    return torch.cat(rows)


def main(rank, world_size, device):
    seed = [secrets.randbelow(2**31)]
    dist.broadcast_object_list(seed)  # so every rank can make rank 0's numbers
    expected, net = network(seed[0], device), network(seed[0] + rank, device)
    torch.manual_seed(0)  # which tells nothing of rank 0's numbers
    tensors = [t.detach() for t in (*net.parameters(), *net.buffers())]
    truth = bits([*expected.parameters(), *expected.buffers()])
    with Counter() as counter:
        done = share(tensors)
    if done is None:  # on all ranks alike, so no rank is left waiting
        print(f"[rank {rank}] not yet", flush=True)
        dist.barrier()  # to leave now would cut off those still joining
        return {"solved": False}
    held = [*net.parameters(), *net.buffers()]
    if not torch.equal(bits(held), truth):
        raise AssertionError("some tensor is not rank 0's, bit by bit")
    calls, size = len(counter.calls), sum(given for _, given in counter.calls)
    told = f"{calls} calls, {size} bytes"
    print(f"[rank {rank}] {told}", flush=True)
    if calls != 1 or size != truth.nbytes or "broadcast" not in counter.calls[0][0]:
        names = ", ".join(name for name, _ in counter.calls)
        raise AssertionError(f"{told} ({names}), expected 1 broadcast, {truth.nbytes}")
    return {"solved": True, "calls": calls, "bytes": size}
