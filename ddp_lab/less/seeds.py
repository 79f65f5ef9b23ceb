"""Which random numbers the ranks share: order of the data, workers' noise, dropout.

    torchrun --standalone --nproc-per-node 4 ddp_lab/less/seeds.py

    [rank 0] one seed: ... different noises, ... different dropouts

Written by notebooks/06_sending_less.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils.data import DataLoader, Dataset, DistributedSampler

EACH, WORKERS = 8, 2  # samples for each rank; processes that load them


class Noisy(Dataset):
    """A sample is its number, and the noise that a worker of the loader adds."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return self.samples

    def __getitem__(self, i):
        return i, torch.rand(()).item()


def drawn(seed, generator, samples):
    """This rank's samples, the noise of its workers, and what its dropout keeps."""
    torch.manual_seed(seed)
    data = Noisy(samples)
    sampler = DistributedSampler(data)  # its own seed, 0, is the same on all ranks
    loader = DataLoader(
        data, EACH // 2, sampler=sampler, num_workers=WORKERS, generator=generator
    )
    numbers, noise = (torch.cat(column) for column in zip(*loader, strict=True))
    kept = torch.nn.functional.dropout(torch.ones(32)).bool()
    return numbers.tolist(), noise.tolist(), kept.tolist()


def main(rank, world_size, device):
    ways = {
        "one seed": (0, None),
        "a seed each": (rank, None),
        "and a generator": (rank, torch.Generator().manual_seed(0)),
    }
    expected = [[1, 1], [world_size, world_size], [1, world_size]]
    facts = {}
    for way, (seed, generator) in ways.items():
        everyone = [None] * world_size
        mine = drawn(seed, generator, EACH * world_size)
        dist.all_gather_object(everyone, mine)  # all know all
        shares, *drawings = zip(*everyone, strict=True)
        different = [len(set(map(tuple, drawing))) for drawing in drawings]
        told = f"{different[0]} different noises, {different[1]} different dropouts"
        print(f"[rank {rank}] {way}: {told}", flush=True)
        facts[way] = different
        if sorted(sum(shares, [])) != list(range(EACH * world_size)):
            raise AssertionError(f"{way}: the shares are {shares}")
    if list(facts.values()) != expected:
        raise AssertionError(f"{facts}, expected {expected}")
    return facts


# --- the same in every program: join the group, run main, leave whatever happens ---


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


@record
def run():
    with process_group() as (rank, world_size, device):
        if facts := main(rank, world_size, device):
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    run()
