"""Exercise: take ZeRO-1's step, with gradients clipped by the norm of all of them.

Once `step` is written, three steps are compared with one process. Until then:

    [rank 0] not yet
"""

import json
import math
import random

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

STEPS, SAMPLES = 3, 2  # samples of each rank in a step


def step(weights, flat, shard, optimizer, limit):
    return None  # the cell's function stands here


def flatten(tensors):
    """All numbers of tensors, and zeros behind them until n equal shards can be cut."""
    flat = torch.cat([tensor.detach().flatten() for tensor in tensors])
    return F.pad(flat, (0, -len(flat) % dist.get_world_size()))


class Arrivals(TorchDispatchMode):
    """Adds up the bytes that calls bring to this rank."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        out = op(*args, **(kwargs or {}))
        if "c10d" in op.namespace:
            self.bytes += arrived(op.name().replace("_", ""), args, out)
        return out


def arrived(name, args, out):
    """Return how many bytes a call brings to this rank from others."""
    rank, n = dist.get_rank(), dist.get_world_size()
    elsewhere = "send" in name or "wait" in name or "wrap" in name
    elsewhere |= name == "c10d::broadcast" and args[2] == rank
    elsewhere |= name == "c10d::reduce" and args[3] != rank
    if elsewhere:
        return 0
    into = args[0] if name.startswith("c10d::") else out  # else it returns a tensor
    size = sum(tensor.nbytes for tensor in tensors_in([into]))
    return size * (n - 1) // n if "gather" in name or "alltoall" in name else size


def tensors_in(args):
    for arg in args:
        if isinstance(arg, torch.Tensor):
            yield arg
        elif isinstance(arg, list | tuple):
            yield from tensors_in(arg)


def network(device, dtype):
    torch.manual_seed(0)  # the same weights on every rank
    # 259 numbers, which 2, 3 or 4 ranks cannot share equally.
    layers = nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 9), nn.Tanh(), nn.Linear(9, 1)
    return nn.Sequential(*layers).to(device, dtype)


def sharded(model, rank, world_size):
    """Move the weights into a flat buffer; return it, and this rank's shard of it."""
    weights = list(model.parameters())
    flat, sizes = flatten(weights), [w.numel() for w in weights]
    pieces = flat[: sum(sizes)].split(sizes)
    for w, piece in zip(weights, pieces, strict=True):
        w.data = piece.view_as(w)
    return flat, nn.Parameter(flat.chunk(world_size)[rank])


def train(make, limit, seed, rank, world_size, device):
    """Compare some steps with those of one process; return False if there are none."""
    model, expected = (network(device, torch.float64) for _ in range(2))
    flat, shard = sharded(model, rank, world_size)
    optimizer, other = make([shard]), make(expected.parameters())
    draw = torch.Generator().manual_seed(seed)
    for number in range(1, STEPS + 1):
        drawn = torch.randn(SAMPLES * world_size, 6, generator=draw, dtype=torch.double)
        x, y = drawn.to(device).split([5, 1], dim=1)
        mine = slice(rank * SAMPLES, (rank + 1) * SAMPLES)
        F.mse_loss(model(x[mine]), y[mine]).backward()
        with Arrivals() as came:
            norm = step(list(model.parameters()), flat, shard, optimizer, limit)
        if norm is None:
            return False
        # Gradients of this shard from each other rank, their shards, a few numbers.
        if came.bytes > (most := 2 * (world_size - 1) * shard.nbytes + 128):
            told = f"rank {rank} received {came.bytes:,} bytes, {most:,} are enough"
            raise AssertionError(f"step {number}: {told}")
        F.mse_loss(expected(x), y).backward()
        true = nn.utils.clip_grad_norm_(expected.parameters(), limit).item()
        other.step()
        other.zero_grad()
        compare(model, expected, float(norm), true, f"limit {limit}, step {number}")
    return True


def compare(model, expected, norm, true, where):
    if not math.isclose(norm, true, rel_tol=1e-5):
        raise AssertionError(f"{where}: the norm is {norm:.4f}, expected {true:.4f}")
    pairs = zip(model.named_parameters(), expected.parameters(), strict=True)
    for (name, w), e in pairs:
        if not torch.allclose(w, e, rtol=0, atol=1e-5):
            furthest = (w - e).abs().max().item()
            told = f"{name} is up to {furthest:.5f} from one process's weights"
            raise AssertionError(f"{where}: {told}")


def main(rank, world_size, device):
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    seed = [random.randrange(2**31)]
    dist.broadcast_object_list(seed)  # the same samples on every rank
    momentum = dict(lr=0.1, momentum=0.9)
    cases = [
        (lambda weights: torch.optim.SGD(weights, **momentum), 1e9),
        (lambda weights: torch.optim.SGD(weights, **momentum), 0.05),
        (lambda weights: torch.optim.AdamW(weights, 0.01), 0.05),
    ]
    for make, limit in cases:
        if not train(make, limit, seed[0], rank, world_size, device):
            print(f"[rank {rank}] not yet", flush=True)
            print(json.dumps({"solved": False}), flush=True)
            dist.barrier()  # to leave now would cut off those that are still joining
            return None
    print(f"[rank {rank}] as one process, with and without clipping", flush=True)
    return {"solved": True}
