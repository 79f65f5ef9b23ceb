"""Time against size for five calls: what a message costs, and what each byte costs.

    torchrun --standalone --nproc-per-node 4 ddp_lab/cost/line.py

    [rank 0] all_reduce: ... us a call, and ... ns a byte

Written by notebooks/12_what_communication_costs.ipynb.
"""

import gc
import json
import os
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

SIZES = [48 * round(21 * 1.6**k) for k in range(20)]  # from 1 KB to 8 MB
ROUNDS = 5  # that count, after one that is checked instead


def exchange(rank, world_size, whole, part):
    """Each rank sends `whole` to its right neighbor, and gets the left one's."""
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    received = torch.empty_like(whole)
    there, back = (dist.isend, whole, right), (dist.irecv, received, left)
    for work in dist.batch_isend_irecv([dist.P2POp(*there), dist.P2POp(*back)]):
        work.wait()
    return received, left + 1.0


def all_reduce(rank, world_size, whole, part):
    dist.all_reduce(whole)  # every rank now holds the sum
    return whole, world_size * (world_size + 1) / 2


def all_gather(rank, world_size, whole, part):
    dist.all_gather_into_tensor(whole, part)  # every rank now holds all parts
    return whole[-len(part) :], world_size  # the last rank's


def reduce_scatter(rank, world_size, whole, part):
    dist.reduce_scatter_tensor(part, whole)  # every rank now holds its part of the sum
    return part, world_size * (world_size + 1) / 2


def all_to_all(rank, world_size, whole, part):
    received = torch.empty_like(whole)
    dist.all_to_all_single(received, whole)  # a part from each rank
    return received[-len(part) :], world_size


CALLS = (exchange, all_reduce, all_gather, reduce_scatter, all_to_all)


def time_call(call, size, rank, world_size, device):
    """The seconds of one call, and whether it did what it should."""
    numbers = size // 4 // world_size  # in float32, of a part
    whole = torch.full((numbers * world_size,), rank + 1.0, device=device)
    part = torch.full((numbers,), rank + 1.0, device=device)
    dist.barrier()  # all ranks begin together
    start = time.perf_counter()
    result, expected = call(rank, world_size, whole, part)
    result[-1].item()  # on a GPU, only this waits for the call
    return time.perf_counter() - start, (result, expected)


def time_all(rank, world_size, device):
    """By call and size, a time for each round: that of the slowest rank."""
    seconds = torch.empty(ROUNDS, len(CALLS), len(SIZES))
    for turn in range(-1, ROUNDS):  # all sizes in each round, so that noise hits all
        for c, call in enumerate(CALLS):
            for s, size in enumerate(SIZES):
                taken, (got, want) = time_call(call, size, rank, world_size, device)
                if turn >= 0:
                    seconds[turn, c, s] = taken
                elif not torch.all(got == want):
                    raise AssertionError(f"{call.__name__} of {size} bytes is wrong")
    seconds = seconds.to(device)
    dist.all_reduce(seconds, dist.ReduceOp.MAX)  # now the slowest rank's, everywhere
    return seconds.cpu().sort(dim=0).values  # (rounds, calls, sizes), sorted


def fit(sizes, seconds):
    """α and β of seconds = α + β * size, so that the line is off by a small share.

    Of all lines the one with the least sum of |error| / seconds: an outlier pulls with
    its weight, not with its square, and small messages count as much as large ones.
    """
    x, y = (torch.tensor(each, dtype=torch.float64) for each in (sizes, seconds))
    rows, weight = torch.stack([1 / y, x / y], 1), torch.ones_like(y)
    for _ in range(50):  # least squares again and again, with less weight on outliers
        line = torch.linalg.lstsq(rows * weight[:, None], weight[:, None]).solution
        weight = ((rows @ line)[:, 0] - 1).abs().clamp(min=1e-3).rsqrt()
    return [max(value, 0.0) for value in line[:, 0].tolist()]


def main(rank, world_size, device):
    # Ranks that share a GPU: gloo can gather only what is in host memory.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    planted = [5e-5 + 2e-9 * size for size in SIZES]
    planted[3] *= 10  # a moment in which the machine did something else
    planted[16] *= 3
    torch.testing.assert_close(fit(SIZES, planted), [5e-5, 2e-9], rtol=0.05, atol=0)
    seconds, facts = time_all(rank, world_size, device), {"sizes": SIZES}
    for c, call in enumerate(CALLS):
        low, median, high = seconds[[1, ROUNDS // 2, -2], c].tolist()
        alpha, beta = fit(SIZES, median)
        told = f"{1e6 * alpha:.0f} us a call, and {1e9 * beta:.2f} ns a byte"
        print(f"[rank {rank}] {call.__name__}: {told}", flush=True)
        facts[call.__name__] = {"low": low, "median": median, "high": high}
        facts[call.__name__] |= {"alpha": alpha, "beta": beta}
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
