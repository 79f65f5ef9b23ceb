"""What DDP makes equal on all ranks, what it leaves apart, and who may fetch the data.

    torchrun --standalone --nproc-per-node 4 ddp_lab/old_pages/training.py

Every rank seeds with its own number, as no old page would have it:

    [rank 1] weights before DDP(): ... from rank 0's; after: ...
    [rank 1] own loss ..., mean of all ranks ..., gradient ...
    [rank 1] fetched by all: ... times; by rank 0 before a barrier: ...

Written by notebooks/15_what_old_pages_say.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

SAMPLES = 5  # of each rank


def apart(weights):
    """How far this rank's weights are from rank 0's."""
    first = weights.detach().clone()
    dist.broadcast(first, src=0)  # every rank now holds rank 0's weights
    return (weights - first).abs().max().item()


def noise(seed):
    """How many different numbers the ranks draw, after seeding like this."""
    torch.manual_seed(seed)
    drawn = [None] * dist.get_world_size()
    dist.all_gather_object(drawn, torch.rand(1).item())  # every rank now holds them all
    return len(set(drawn))


def step(ddp, rank, device):
    """One backward pass: this rank's loss, the mean of all ranks, the gradient."""
    samples = torch.arange(1.0, SAMPLES + 1, device=device) + rank * SAMPLES
    loss = ddp(samples.view(-1, 1)).mean()
    loss.backward()  # every rank now holds the mean of all ranks' gradients
    mean = loss.detach().clone()
    dist.all_reduce(mean)  # every rank now holds the sum of the losses ...
    mean /= dist.get_world_size()  # ... which nobody has divided yet
    return loss.item(), mean.item(), ddp.module.weight.grad.item()


def fetch(folder):
    """Stands for a download: note that it happened, as a file can be written twice."""
    with Path(folder, "downloads").open("a") as log:
        log.write("x")


def fetched(folder, everybody):
    """How often the data are fetched, if by all who miss them or by rank 0 alone."""
    Path(folder).mkdir(exist_ok=True)
    missing = not Path(folder, "downloads").exists()
    dist.barrier()  # every rank has looked: launched together, they look together
    if missing and (everybody or dist.get_rank() == 0):
        fetch(folder)
    dist.barrier()  # every rank may now read
    return len(Path(folder, "downloads").read_text())


@record
def main():
    with process_group() as (rank, world_size, device), TemporaryDirectory() as own:
        torch.manual_seed(rank)
        model = torch.nn.Linear(1, 1, bias=False).to(device)
        before = apart(model.weight)
        ddp = DDP(model)
        after = apart(model.weight)
        print(
            f"[rank {rank}] weights before DDP(): {before:.2f} from rank 0's;"
            f" after: {after:.2f}",
            flush=True,
        )
        loss, mean, gradient = step(ddp, rank, device)
        print(
            f"[rank {rank}] own loss {loss:.2f}, mean of all ranks {mean:.2f},"
            f" gradient {gradient:.2f}",
            flush=True,
        )
        folders = [own]
        dist.broadcast_object_list(folders, src=0)  # all ranks now name rank 0's folder
        times = [
            fetched(f"{folders[0]}/{everybody}", everybody)
            for everybody in (True, False)
        ]
        told = f"by all: {times[0]} times; by rank 0 before a barrier: {times[1]}"
        print(f"[rank {rank}] fetched {told}", flush=True)
        noises = [noise(0), noise(rank)]
        middle = (world_size * SAMPLES + 1) / 2  # the mean of 1, 2, ... is the gradient
        got = [after, noises, times, bool(before)]
        expected = [0.0, [1, world_size], [world_size, 1], bool(rank)]
        if got != expected:
            raise AssertionError(f"{got}, expected {expected}")
        truths = {mean: middle * model.weight.item(), gradient: middle}
        if any(abs(value - truth) > 1e-4 for value, truth in truths.items()):
            raise AssertionError(f"mean loss and gradient: {truths}")
        facts = {"before": before, "after": after, "loss": loss, "mean": mean}
        facts |= {"gradient": gradient, "noises": noises, "fetched": times}
        print(json.dumps(facts), flush=True)
        del ddp  # before its group, or torch up to 2.13 could wait for ever


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
