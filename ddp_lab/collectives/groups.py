"""Groups: even and odd ranks sum separately; then all call the evens' all_reduce.

    torchrun --standalone --nproc-per-node 4 ddp_lab/collectives/groups.py

Written by notebooks/02_collectives.ipynb.
"""

import gc
import json
import os
import warnings
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


def make_groups(world_size):
    members = [list(range(first, world_size, 2)) for first in (0, 1)]
    # Each rank numbers its groups, so all ranks make all of them, in the same order.
    return members, [dist.new_group(ranks) for ranks in members]


def make_own_group(ranks):
    # With this option only the members make the group. Over gloo, so on the CPU.
    return dist.new_group(ranks, backend="gloo", use_local_synchronization=True)


def sum_in(group, number, device):
    buf = torch.tensor([number], device=device)  # (1,)
    # Every member ends up with the group's sum, an outsider with its own number.
    dist.all_reduce(buf, op=dist.ReduceOp.SUM, group=group)
    return buf.item()


def main(rank, world_size, device):
    members, groups = make_groups(world_size)
    odd, number = rank % 2, 10 * rank + 1
    ranks, group = members[odd], groups[odd]
    inside = sum_in(group, number, device)
    own = sum_in(make_own_group(ranks), number, torch.device("cpu"))
    first = torch.tensor([rank], device=device)  # (1,)
    # The group ends up with its first member's number; src counts in the world.
    dist.broadcast(first, src=ranks[0], group=group)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        outside = sum_in(groups[0], number, device)  # the odd ranks call it, too

    place, warned = dist.get_rank(group), [str(w.message) for w in caught]
    told = f"rank {place} of {len(ranks)} in its group: {number} became {inside}"
    print(f"[rank {rank}] is {told}; with the evens {outside}", flush=True)
    dist.barrier()  # two ranks share no group, and one could leave too early
    total = sum(10 * r + 1 for r in ranks)
    expected = [rank // 2, total, total, odd, number if odd else total, odd]
    if (got := [place, inside, own, first.item(), outside, len(warned)]) != expected:
        raise AssertionError(f"the groups gave {got}, expected {expected}")
    facts = {"place": place, "inside": inside, "own": own}
    return facts | {"outside": outside, "warned": warned}


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
