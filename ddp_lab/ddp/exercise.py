"""Exercise: a loss that makes DDP right although the shards are unequal.

    torchrun --standalone --nproc-per-node 3 ddp_lab/ddp/exercise.py

Sample i has the gradient i. Rank 0 holds 1 to 8, rank 1 holds 9 and 10: find 5.5.

Written by notebooks/03_ddp_basics.ipynb.
"""

import gc
import json
import os
import random
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

RUNS = 4  # in the first one, the shards of the lesson


def shard_loss(errors):
    """Return the loss of this rank's samples that makes DDP's gradient the true mean.

    DDP gives every rank the mean of the ranks' gradients, one vote for each rank. With
    `errors.mean()`, a sample of a small shard therefore counts for more than others.

    Args:
        errors: (samples of this rank, 1), one number per sample, on this rank's device.

    Returns:
        A scalar whose backward() leaves, on every rank, the gradient of the mean over
        the samples of all ranks. To find out how many there are, ask the other ranks.
    """
    return None  # your code here


def sizes_of_shards(run, world_size):
    """The number of samples of each rank."""
    sizes = [8] + [2] * (world_size - 1)
    if run > 0:
        sizes = [random.randint(1, 12) for _ in sizes]
    dist.broadcast_object_list(sizes, src=0)  # every rank now holds what rank 0 drew
    return sizes


def gradient(shard, device):
    """The gradient that DDP makes of this rank's loss; None if there is no loss yet."""
    model = DDP(torch.nn.Linear(1, 1, bias=False).to(device))
    loss = shard_loss(model(shard.view(-1, 1).to(device)))
    if loss is None:
        return None
    loss.backward()  # every rank now holds the mean of all ranks' gradients
    return model.module.weight.grad.item()


def main(rank, world_size, device):
    facts = {"solved": True, "expected": [], "gradients": []}
    for run in range(RUNS):
        sizes = sizes_of_shards(run, world_size)
        samples = torch.arange(1.0, sum(sizes) + 1)
        expected = samples.mean().item()
        got = gradient(samples.split(sizes)[rank], device)
        if got is None:  # on all ranks alike, so no rank is left waiting
            print(f"[rank {rank}] not yet", flush=True)
            dist.barrier()  # to leave now would cut off those still joining
            return {"solved": False}
        if abs(got - expected) > 1e-4:
            raise AssertionError(f"shards {sizes}: {got:.4f}, expected {expected}")
        print(f"[rank {rank}] shards {sizes}: gradient {got:.1f}", flush=True)
        facts["gradients"].append(got)
        facts["expected"].append(expected)
    return facts


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
