"""Which random numbers the ranks share: order of the data, workers' noise, dropout.

    torchrun --standalone --nproc-per-node 2 ddp_lab/practice/seeds.py

Written by notebooks/05_ddp_in_practice.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils.data import DataLoader, DistributedSampler

EACH, WORKERS = 8, 2  # samples for each rank; processes that load them


def noisy(samples):
    """Samples, which are numbers, and the noise that a worker adds to each."""
    return [(sample, torch.rand(()).item()) for sample in samples]


def drawn(seed, generator, samples):
    """This rank's samples, the noise of its workers, and what its dropout keeps."""
    torch.manual_seed(seed)
    how = {"num_workers": WORKERS, "collate_fn": noisy, "generator": generator}
    loader = DataLoader(samples, EACH // 2, sampler=DistributedSampler(samples), **how)
    numbers, noise = zip(*(pair for pairs in loader for pair in pairs), strict=True)
    return numbers, noise, torch.nn.functional.dropout(torch.ones(32)).tolist()


def main(rank, world_size, device):
    facts, samples = {}, range(EACH * world_size)
    ways = {"one seed": (0, None), "a seed each": (rank, None)}
    ways["and a generator"] = rank, torch.Generator().manual_seed(0)
    for way, how in ways.items():
        everyone = [None] * world_size
        dist.all_gather_object(everyone, drawn(*how, samples))  # all know all
        shares, *drawings = zip(*everyone, strict=True)
        facts[way] = [len(set(map(tuple, drawing))) for drawing in drawings]
        line = "{} different noises, {} different dropouts".format(*facts[way])
        print(f"[rank {rank}] {way}: {line}", flush=True)
        if sorted(sum(shares, ())) != list(samples):
            raise AssertionError(f"{way}: the shares are {shares}")
    if [*facts.values()] != [[1, 1], [world_size, world_size], [1, world_size]]:
        raise AssertionError(f"different drawings by way: {facts}")
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
