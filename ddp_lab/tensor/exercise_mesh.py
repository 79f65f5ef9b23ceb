"""Exercise: the cheapest way between placements on a mesh; "not yet" until written.

    torchrun --standalone --nproc-per-node 2 ddp_lab/tensor/exercise_mesh.py

Written by notebooks/18_meshes.ipynb.
"""

import functools
import gc
import itertools
import json
import math
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
)
from torch.utils._python_dispatch import TorchDispatchMode

SLOW = 10  # a number that crosses between nodes costs as much as ten inside one
SIZE = 48  # of the matrix that is really moved, (48, 48)
MESHES = ((2, 4), (4, 2), (3, 3), (2, 16))  # nodes, ranks in each
ALL = (Partial(), Replicate(), Shard(0), Shard(1))


def route(start, goal, nodes, per_node):
    """Return the cheapest steps from start to goal, as a list that ends with goal.

    start, goal and each step are pairs: (placement across nodes, placement inside).
    A step changes one of the two, to Replicate() or Shard(0) or Shard(1), and a Shard
    only to Replicate(). If both cut the same dimension, only the inner one can change.
    price(old, new, (nodes, per_node)) tells what a step costs, or None if it is none;
    ALL holds the four placements. For start == goal return [].
    """
    return None  # your code here


@functools.cache
def price(old, new, sizes):
    """What one step costs, in whole tensors; None if it is no step.

    A step changes one of the two placements, to Replicate or to Shard, by one call.
    """
    changed = [d for d in (0, 1) if old[d] != new[d]]
    if len(changed) != 1 or isinstance(new[changed[0]], Partial):
        return None
    (d,) = changed
    was, becomes, ranks = old[d], new[d], sizes[d]
    # Ranks of a node divide what the node has: their cut must be undone first.
    if d == 0 and isinstance(old[1], Shard) and old[1] in (was, becomes):
        return None
    if isinstance(was, Shard) and isinstance(becomes, Shard):
        return None  # an all_to_all, which gloo has not: go by Replicate
    # What a rank receives, as a ring sends it: first in shares of what it has.
    shares = {Replicate: 0, Shard: ranks - 1, Partial: (ranks - 1) / ranks}[type(was)]
    if isinstance(was, Partial) and isinstance(becomes, Replicate):
        shares *= 2  # an all_reduce: a reduce_scatter and an all_gather
    cuts = [n for p, n in zip(old, sizes, strict=True) if isinstance(p, Shard)]
    return shares / math.prod(cuts) * (SLOW if d == 0 else 1)


def cheapest(start, sizes):
    """The truth, by trying all steps again and again: the price of every goal."""
    prices = {start: 0.0}
    for _ in range(len(ALL) ** 2):
        for old, new in itertools.product(list(prices), itertools.product(ALL, ALL)):
            if (cost := price(old, new, sizes)) is not None:
                prices[new] = min(prices.get(new, 1e9), prices[old] + cost)
    return prices


def ask(start, goal, sizes):
    """Return the route and its price; raise if it does not lead to the goal."""
    total, at = 0.0, start
    steps = [tuple(step) for step in route(start, goal, *sizes)]
    for step in steps:
        if (cost := price(at, step, sizes)) is None:
            raise AssertionError(f"{start} to {goal}: no step from {at} to {step}")
        total, at = total + cost, step
    if at != goal:
        raise AssertionError(f"{start} to {goal}: the route ends at {at}")
    return steps, total


def ask_about_all(sizes):
    """Ask for every start and every goal that it can reach."""
    for start in itertools.product(ALL, ALL):
        for goal, expected in cheapest(start, sizes).items():
            total = ask(start, goal, sizes)[1]
            if total > expected + 1e-9:
                way = f"{start} to {goal} on {sizes[0]} nodes of {sizes[1]}"
                raise AssertionError(f"{way} costs {total:.3f}, could {expected:.3f}")


class Received(TorchDispatchMode):
    """Adds up what a rank receives, as rings send it, at each dimension's price."""

    def __init__(self, mesh):
        super().__init__()
        self.sizes = {mesh.get_group(d).group_name: (d, mesh.size(d)) for d in (0, 1)}
        self.total = 0.0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if DTensor in types:
            return NotImplemented  # first DTensor turns it into work on local parts
        if "c10d" in op.namespace and args[-1] in self.sizes:
            d, ranks = self.sizes[args[-1]]
            parts = 1 if "all_gather" in op.name() else 1 / ranks
            parts *= (ranks - 1) * (2 if "all_reduce" in op.name() else 1)
            received = args[0].numel() / SIZE**2 * parts
            self.total += received * (SLOW if d == 0 else 1)
        return op(*args, **(kwargs or {}))


def travel(start, steps, mesh, whole):
    """Take a real matrix along; return what a rank received, at its price."""
    cut = [Replicate() if isinstance(p, Partial) else p for p in start]
    sums = [mesh.size(d) for d in (0, 1) if isinstance(start[d], Partial)]
    local = distribute_tensor(whole / math.prod(sums), mesh, cut).to_local()
    tensor = DTensor.from_local(local, mesh, start)  # as Partial, in equal summands
    with Received(mesh) as received:
        for step in steps:
            tensor = tensor.redistribute(placements=step)
    torch.testing.assert_close(tensor.full_tensor(), whole, msg="numbers were lost")
    return received.total


def main(rank, world_size, device):
    if SIZE % world_size:
        raise ValueError(f"{world_size} ranks cannot share {SIZE} rows")
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    inner = next(n for n in range(2, world_size + 1) if world_size % n == 0)
    mesh = init_device_mesh(device.type, (world_size // inner, inner))
    whole = torch.arange(1.0, SIZE**2 + 1, device=device).view(SIZE, SIZE)
    start, goal = (Partial(), Partial()), (Replicate(), Replicate())
    straight = travel(start, [goal], mesh, whole)
    if route(start, goal, *MESHES[0]) is None:
        print(f"[rank {rank}] not yet; straight to the goal: {straight:g}", flush=True)
        return {"solved": False, "straight": straight}
    for sizes in MESHES:
        ask_about_all(sizes)
    for first in itertools.product(ALL, ALL):
        steps, expected = ask(first, goal, tuple(mesh.shape))
        if abs((paid := travel(first, steps, mesh, whole)) - expected) > 1e-9:
            raise AssertionError(f"{first} to {goal}: {paid}, not {expected}")
    both = ask(start, goal, MESHES[0])[1]
    print(f"[rank {rank}] cheapest everywhere; both sums for {both:g}", flush=True)
    return {"solved": True, "both": both, "straight": straight}


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
