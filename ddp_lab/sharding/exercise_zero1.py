"""Exercise: take ZeRO-1's step, with gradients clipped by the norm of all of them.

    torchrun --standalone --nproc-per-node 3 ddp_lab/sharding/exercise_zero1.py

Once `step` is written, three steps are compared with one process. Until then:

    [rank 0] not yet

Written by notebooks/15_sharding.ipynb.
"""

import gc
import json
import math
import os
import random
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils._python_dispatch import TorchDispatchMode

STEPS, SAMPLES = 3, 2  # samples of each rank in a step


def step(weights, flat, shard, optimizer, limit):
    """Take stage 1's step with clipped gradients; return the norm before clipping.

    backward() has run: w.grad of each weight is that of this rank's samples, and all
    ranks have equally many. The weights are views of flat, which ends in zeros if the
    ranks do not divide it. shard is this rank's part of flat, an nn.Parameter, and the
    only one in the optimizer. flatten(tensors) is given: one tensor, padded like flat.

    Afterwards all ranks have the new weights, and no weight has a gradient. Send no
    gradient to a rank that does not need it: no all_reduce of all of them.
    """
    return None  # your code here


def flatten(tensors):
    """All numbers of tensors, and zeros behind them until n equal shards can be cut."""
    flat = torch.cat([tensor.detach().flatten() for tensor in tensors])
    return F.pad(flat, (0, -len(flat) % dist.get_world_size()))


class Calls(TorchDispatchMode):
    """Refuse calls that give a rank more than its shard of the gradients."""

    def __init__(self, shard):
        super().__init__()
        self.shard = shard.numel()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        name = op.name().replace("_", "")
        if "c10d" in op.namespace:
            most = max((t.numel() for t in tensors_in(args)), default=0)
            if "allreduce" in name and most > 16:
                raise AssertionError(f"an all_reduce of {most} numbers")
            if name == "c10d::reduce" and most > self.shard + 16:
                raise AssertionError(f"a reduce of {most} numbers to one rank")
            given = min((t.numel() for t in tensors_in(args)), default=0)
            if "gather" in name and given > self.shard + 16:
                raise AssertionError(f"a gather of {given} numbers of each rank")
        return op(*args, **(kwargs or {}))


def tensors_in(args):
    for arg in args:
        if isinstance(arg, torch.Tensor):
            yield arg
        elif isinstance(arg, list | tuple):
            yield from tensors_in(arg)


def network(device, dtype):
    torch.manual_seed(0)  # the same weights on every rank
    # 79 numbers, which 2, 3 or 4 ranks cannot share equally.
    layers = nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 4), nn.Tanh(), nn.Linear(4, 1)
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
        with Calls(shard):
            norm = step(list(model.parameters()), flat, shard, optimizer, limit)
        if norm is None:
            return False
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


# --- the same in every program: join the group, run main, leave whatever happens ---


@contextmanager
def process_group():
    """A GPU per rank over NCCL; else gloo, on a shared GPU or the CPU."""
    device, backend, well = torch.device("cpu"), "gloo", False
    if count := torch.accelerator.device_count():
        kind = torch.accelerator.current_accelerator().type
        index = int(os.environ["LOCAL_RANK"]) % count
        own = dist.get_default_backend_for_device(kind)  # cuda: nccl, xpu: xccl
        if count == 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
            count = int(os.environ.get("SLURM_GPUS_ON_NODE", 1))  # each sees its own
        if count >= int(os.environ["LOCAL_WORLD_SIZE"]) and own != "gloo":
            backend = f"cpu:gloo,{kind}:{own}"
        if kind == "cuda" or backend != "gloo":  # gloo carries CPU and CUDA tensors
            device = torch.device(kind, index)
            torch.accelerator.set_device_index(index)
    os.environ["TORCH_DIST_INIT_BARRIER"] = "1"  # nobody leaves before all have joined
    dist.init_process_group(backend, device_id=device if "nccl" in backend else None)
    del os.environ["TORCH_DIST_INIT_BARRIER"]  # new_group need not wait for all
    try:
        yield dist.get_rank(), dist.get_world_size(), device
        well = True
    finally:
        if well or backend == "gloo":  # over NCCL a leaving rank could hang
            dist.destroy_process_group()
            gc.collect()  # a leftover gloo object could abort the process at exit


@record
def run():
    with process_group() as (rank, world_size, device):
        if facts := main(rank, world_size, device):
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    run()
