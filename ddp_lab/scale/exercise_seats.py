"""Exercise: the order of a mesh's dimensions that sends the fewest bytes over the wire.

    torchrun --standalone --nproc-per-node 2 ddp_lab/scale/exercise_seats.py

Meshes of up to 4,096 ranks, drawn anew in each run. Until order() returns names:

    [rank 0] not yet: write order()

Written by notebooks/21_choose_a_layout.ipynb.
"""

import gc
import json
import os
import random
from contextlib import contextmanager
from itertools import permutations
from math import prod

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

CASES, MACHINE = 12, 8  # ranks of a machine


def order(sizes, sent, machine):
    """Return the names of the dimensions, as for mesh_dim_names: the last runs fastest.

    sizes: how many ranks each dimension has, by name. sent: the bytes that a rank sends
    to the next one of its ring along it, in a step. machine: ranks of a machine, which
    are numbered one machine after the other. The bytes that leave machines, summed up
    over all ranks, must be the fewest.
    """
    return None  # your code here


def over_the_wire(names, sizes, sent, machine):
    """Bytes that rings send between machines, of all ranks together.

    Each ring is followed from rank to rank, so no formula has to be believed.
    """
    world = torch.arange(prod(sizes.values())).view([sizes[name] for name in names])
    total = 0.0
    for dim, name in enumerate(names):
        rings = world.movedim(dim, -1).reshape(-1, sizes[name])
        leaves = rings // machine != rings.roll(-1, dims=1) // machine
        total += sent[name] * leaves.sum().item()
    return total


def least(sizes, sent, machine):
    every = permutations(sizes)
    return min(over_the_wire(names, sizes, sent, machine) for names in every)


def draw(seed):
    """Return meshes; in the first, the greediest dimension should not run fastest."""
    chance, cases = random.Random(seed), []
    while len(cases) < CASES:
        names = ["tensor", "context", "data", "pipeline"][: chance.choice((3, 4, 4))]
        sizes = {name: chance.choice((2, 4, 8, 16)) for name in names}
        sent = {name: chance.randrange(20, 100) * 1e6 for name in names}
        if not MACHINE < prod(sizes.values()) <= 4096:
            continue
        by_bytes = sorted(names, key=sent.get)  # the most bytes innermost
        by_size = sorted(names, key=sizes.get, reverse=True)
        best = least(sizes, sent, MACHINE)
        traps = [
            over_the_wire(each, sizes, sent, MACHINE) for each in (by_bytes, by_size)
        ]
        if cases or min(traps) > 1.01 * best:
            cases.append((sizes, sent, best))
    return cases


def judge(sizes, sent, best):
    names = order(dict(sizes), dict(sent), MACHINE)
    if names is None:
        return None
    told = f"{sizes}, {sent}: {names}"
    if sorted(names) != sorted(sizes):
        raise AssertionError(f"{told} does not name each dimension once")
    times = over_the_wire(names, sizes, sent, MACHINE) / max(best, 1)
    if times > 1.001:
        raise AssertionError(f"{told} sends {times:.2f} times the bytes needed")
    return times


def main(rank, world_size, device):
    seeds = [random.random()]
    dist.broadcast_object_list(seeds)  # all ranks draw the same meshes
    times = [judge(*case) for case in draw(seeds[0])]
    if None in times:
        print(f"[rank {rank}] not yet: write order()", flush=True)
        return {"solved": False}
    print(f"[rank {rank}] {len(times)} meshes: no order sends less", flush=True)
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
