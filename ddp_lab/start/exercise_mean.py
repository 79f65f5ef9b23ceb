"""Exercise: the mean over all ranks, although their lists differ in length.

    torchrun --standalone --nproc-per-node 2 ddp_lab/start/exercise_mean.py

Once `mean_of_all` is written, two ranks print:

    [rank 0] 1 number of mean 10.0; all ranks together: ...
    [rank 1] 3 numbers of mean 20.0; all ranks together: ...

Written by notebooks/00_start_here.ipynb.
"""

import gc
import json
import os
import secrets
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


def mean_of_all(mine):
    """Return the mean of the numbers of all ranks together, on every rank.

    mine: (length,), float64, this rank's numbers; other ranks have other lengths.
    result: a number, or a tensor with one. torch and dist are imported already.
    """
    return None  # your code here


def numbers_of(rank, device):
    """First numbers with a mean that you can work out, then some at random."""
    yield torch.full((2 * rank + 1,), 10.0 * (rank + 1), device=device).double()
    count = 20 + secrets.randbelow(9)
    drawn = [secrets.randbelow(1000) for _ in range(count)]
    yield torch.tensor(drawn, device=device).double()


def main(rank, world_size, device):
    means = []
    for mine in numbers_of(rank, device):
        mean = mean_of_all(mine.clone())
        answer = mine.tolist(), None if mean is None else float(mean)
        answers = [None] * world_size
        # Every rank ends with the answers of all, so all come to one verdict.
        dist.all_gather_object(answers, answer)
        lists, got = (list(column) for column in zip(*answers, strict=True))
        if got == [None] * world_size:
            print(f"[rank {rank}] not yet", flush=True)
            return {"solved": False}
        numbers = sum(lists, [])
        expected = sum(numbers) / len(numbers)
        # 1e-3: so that float32 is right, too.
        if any(m is None or abs(m - expected) > 1e-3 for m in got):
            raise AssertionError(f"the means {got}, expected {expected} everywhere")
        means.append(got[rank])
    count = f"{2 * rank + 1} numbers" if rank else "1 number"
    own = f"{count} of mean {10.0 * (rank + 1)}"
    together = f"all ranks together: {round(means[0], 2)}"
    print(f"[rank {rank}] {own}; {together}", flush=True)
    return {"solved": True, "mean": means[0]}


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
