"""Parameter averaging: each rank trains alone for a while, then all take the mean.

    torchrun --standalone --nproc-per-node 4 ddp_lab/collectives/averaging.py

    [rank 0] steps alone: 5, collectives: 4, same as on all data: ...

Written by notebooks/02_collectives.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

STEPS, LEARNING_RATE = 20, 0.1


def make_shard(rank):
    """The data of one rank; the first weight that fits them is 1 + rank."""
    generator = torch.Generator().manual_seed(rank)
    x = torch.randn(32, 2, generator=generator)  # (samples, features)
    return x, x @ torch.tensor([[1.0 + rank], [-1.0]])  # (samples, 1)


def train(shards, every, average):
    """Train a weight vector on each shard; return the first one, and its path."""
    weights, path = [x.new_zeros(2, 1) for x, _ in shards], []
    for step in range(STEPS):
        for i, (x, y) in enumerate(shards):
            weight = weights[i].clone().requires_grad_()  # (features, 1)
            torch.nn.functional.mse_loss(x @ weight, y).backward()
            weights[i] = (weight - LEARNING_RATE * weight.grad).detach()
        path.append(round(weights[0][0].item(), 4))
        if (step + 1) % every == 0:
            weights = average(weights)
            path.append(round(weights[0][0].item(), 4))
    return weights[0].cpu(), path


def over_ranks(weights):
    (weight,) = weights
    # Every rank ends up with the sum of all weights, then with their mean.
    dist.all_reduce(weight, op=dist.ReduceOp.SUM)
    weight /= dist.get_world_size()  # without this the weights would grow
    return [weight]


def in_one_process(weights):
    return [torch.stack(weights).mean(0)] * len(weights)


def main(rank, world_size, device):
    shards = [make_shard(r) for r in range(world_size)]
    mine = [part.to(device) for part in shards[rank]]
    everything = [torch.cat(parts) for parts in zip(*shards, strict=True)]
    all_data, _ = train([everything], STEPS, in_one_process)  # one model: no averages
    facts = {"all_data": round(all_data[0].item(), 4)}
    for every in (1, 5):
        weight, path = train([mine], every, over_ranks)
        expected, _ = train(shards, every, in_one_process)
        if not torch.allclose(weight, expected, rtol=1e-4, atol=1e-5):
            raise AssertionError(f"{weight.tolist()}, expected {expected.tolist()}")
        gap = (weight - all_data).abs().max().item()
        told = f"collectives: {STEPS // every}, same as on all data: {gap < 1e-4}"
        print(f"[rank {rank}] steps alone: {every}, {told}", flush=True)
        facts[f"every_{every}"] = {"path": path, "gap": gap}
    if not facts["every_1"]["gap"] < 1e-4:
        raise AssertionError("averaging each step is not training on all data")
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
