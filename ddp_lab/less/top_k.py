"""Top-k: send the largest numbers of a gradient, and owe the others.

    torchrun --standalone --nproc-per-node 4 ddp_lab/less/top_k.py

Two weights, of which each rank sends one a step; the second should reach 1:

    [rank 0] the second weight moved in ... of 200 steps, to ...

Written by notebooks/13_sending_less.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

SHARE = 0.01  # of the numbers in a bucket; at least one is sent

STEPS, RATE = 200, 0.04


def top_k(owed, bucket):
    """DDP's hook: the mean of the ranks' largest numbers; `owed` keeps the others."""
    index, size = bucket.index(), len(bucket.buffer())
    if index not in owed or len(owed[index]) != size:
        owed[index] = torch.zeros_like(bucket.buffer())
        return allreduce_hook(None, bucket)  # whole: DDP regroups buckets once
    total = bucket.buffer() + owed[index]
    largest = total.abs().topk(max(1, int(SHARE * size))).indices
    owed[index] = total.index_fill(0, largest, 0)  # for later steps
    # Every rank then holds the places and the numbers that all ranks have chosen.
    places, numbers = gathered(largest.int()), gathered(total[largest])
    mean = torch.zeros_like(total)
    for place, number in zip(places, numbers, strict=True):  # in one order everywhere
        mean[place] += number / dist.get_world_size()
    future = torch.futures.Future()  # DDP waits for what a hook returns
    future.set_result(mean)
    return future


def gathered(mine):
    """What each rank has chosen: (ranks, numbers)."""
    everyone = mine.new_empty(dist.get_world_size() * len(mine))
    dist.all_gather_into_tensor(everyone, mine)
    return everyone.view(-1, len(mine))


def goals(world_size):
    """By rank, where its loss wants the weights; the mean is [0, 1]."""
    first = torch.full((world_size,), -4.0)
    first[0] = 4.0 * (world_size - 1)  # the ranks pull at the first weight, in vain
    return torch.stack([first, torch.ones(world_size)], dim=1)  # (ranks, 2)


def main(rank, world_size, device):
    # Ranks that share a GPU: gloo can gather only what is in host memory.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    layer, one = torch.nn.Linear(2, 1, bias=False), torch.eye(2, device=device)
    torch.nn.init.zeros_(layer.weight)
    ddp, goal = DDP(layer.to(device)), goals(world_size)[rank].to(device)
    ddp.register_comm_hook({}, top_k)
    sgd, path = torch.optim.SGD(ddp.parameters(), RATE), [0.0]
    for _ in range(STEPS):
        sgd.zero_grad()
        ((ddp(one).flatten() - goal).square().sum() / 2).backward()
        sgd.step()
        path.append(layer.weight[0, 1].item())
    moved = sum(now != before for before, now in zip(path, path[1:], strict=False))
    told = f"the second weight moved in {moved} of {STEPS} steps, to {path[-1]:.2f}"
    print(f"[rank {rank}] {told}", flush=True)
    off = (layer.weight.flatten().cpu() - goals(world_size).mean(0)).abs().max()
    if not off < 0.1:
        raise AssertionError(told)
    return {"moved": moved, "path": path}


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
