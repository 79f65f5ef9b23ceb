"""Parameter averaging: each rank trains alone for a while, then all take the mean.

    torchrun --standalone --nproc-per-node 4 ddp_lab/collectives/averaging.py

They meet after each of 20 steps, then after every fifth. Does that end
where one model, trained on the data of all ranks, ends?

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


def train(rank, world_size, device, every):
    """Train on my shard, average after each `every` steps; return the path."""
    x, y = (part.to(device) for part in make_shard(rank))
    weight, path = torch.zeros(2, 1, device=device), []
    for step in range(STEPS):
        weight = local_step(weight, x, y)
        path.append(round(weight[0].item(), 4))
        if (step + 1) % every == 0:
            # Every rank ends up with the sum of all weights, then with their mean;
            # without the division the weights would grow at each meeting.
            dist.all_reduce(weight, op=dist.ReduceOp.SUM)
            weight /= world_size
            path.append(round(weight[0].item(), 4))
    return weight.cpu(), path


def local_step(weight, x, y):
    """One step of gradient descent on these data alone."""
    weight = weight.detach().requires_grad_()
    torch.nn.functional.mse_loss(x @ weight, y).backward()
    return (weight - LEARNING_RATE * weight.grad).detach()  # (features, 1)


def make_shard(rank):
    """The data of one rank; each shard wants another first weight, 1 + rank."""
    generator = torch.Generator().manual_seed(rank)
    x = torch.randn(32, 2, generator=generator)  # (samples, features)
    return x, x @ torch.tensor([[1.0 + rank], [-1.0]])  # (samples, 1)


def train_all_here(world_size, every):
    """The truth: one process plays all the ranks, one after the other."""
    shards = [make_shard(r) for r in range(world_size)]
    weights = [torch.zeros(2, 1)] * world_size
    for step in range(STEPS):
        pairs = zip(weights, shards, strict=True)
        weights = [local_step(weight, x, y) for weight, (x, y) in pairs]
        if (step + 1) % every == 0:
            # What all_reduce and the division come to, without any communication.
            weights = [torch.stack(weights).mean(0)] * world_size
    return weights[0]


def train_on_all_data(world_size):
    """What averaged gradients (DDP) come to: one model, one shard with everything."""
    x, y = map(torch.cat, zip(*map(make_shard, range(world_size)), strict=True))
    weight = torch.zeros(2, 1)
    for _ in range(STEPS):
        weight = local_step(weight, x, y)
    return weight


@record
def main():
    with process_group() as (rank, world_size, device):
        facts, all_data = {}, train_on_all_data(world_size)
        for every in (1, 5):
            weight, path = train(rank, world_size, device, every)
            expected = train_all_here(world_size, every)
            if not torch.allclose(weight, expected, rtol=1e-4, atol=1e-5):
                raise AssertionError(f"{weight.tolist()}, expected {expected.tolist()}")
            gap = (weight - all_data).abs().max().item()
            print(
                f"[rank {rank}] steps alone: {every}, collectives: {STEPS // every},"
                f" same as on all data: {gap < 1e-4}",
                flush=True,
            )
            facts[f"every_{every}"] = {"path": path, "gap": gap}
        facts["all_data"] = round(all_data[0].item(), 4)  # its first weight
        print(json.dumps(facts), flush=True)
        if facts["every_1"]["gap"] > 1e-4:
            raise AssertionError("averaging each step is not training on all data")


# --- the same in every program: join the group, and leave it whatever happens ---


@contextmanager
def process_group():
    """A GPU per rank over NCCL; else gloo, on a shared GPU or the CPU."""
    device, backend = torch.device("cpu"), "gloo"
    if count := torch.cuda.device_count():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % count)
        torch.cuda.set_device(device)
        if count >= int(os.environ["LOCAL_WORLD_SIZE"]):
            backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, device_id=device if "nccl" in backend else None)
    try:
        yield dist.get_rank(), dist.get_world_size(), device
    finally:
        dist.destroy_process_group()
        gc.collect()  # a leftover gloo object could abort the process at exit


if __name__ == "__main__":
    main()
