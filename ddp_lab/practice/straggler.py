"""One slow rank: where the others wait for it, and for how long they are willing to.

    torchrun --standalone --nproc-per-node 2 ddp_lab/practice/straggler.py

The last rank naps twice. The others stop at the next call that needs all ranks:

    [rank 0] waited for rank 1 in DDP()
    [rank 1] napped before DDP()

Written by notebooks/04_ddp_in_practice.ipynb.
"""

import gc
import json
import os
import time
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS = 4
NAPS, PATIENCE = {"DDP()": 0.5, "forward 2": 0.5}, 60.0  # in seconds


def train(late, device, group):
    """Train, napping if late; return what this rank did, and when."""
    rows, batch = [], torch.ones(8, 4, device=device)
    model = torch.nn.Linear(4, 4).to(device)
    if late:
        nap(rows, "DDP()")
    with timed(rows, "DDP()"):
        # Every rank now holds rank 0's weights, so none gets past here before all came.
        model = DDP(model, process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        if late:
            nap(rows, f"forward {step}")
        with timed(rows, f"forward {step}"):
            loss = model(batch).square().mean()
        with timed(rows, f"backward {step}"):
            loss.backward()
            # A GPU's host is not held up by backward(); it is by asking for a number.
            model.module.bias.grad.sum().item()
        with timed(rows, f"step {step}"):
            optimizer.step()  # needs nobody: the gradients are there already
            optimizer.zero_grad()
    return rows


def nap(rows, before):
    """What makes a rank late: a longer batch, a slower disk, a busy neighbour."""
    if before in NAPS:
        with timed(rows, f"nap before {before}"):
            time.sleep(NAPS[before])


@contextmanager
def timed(rows, label):
    """Note [label, start, end], by the clock that all ranks of a machine share."""
    start = time.time()
    yield
    rows.append([label, start, time.time()])


@record
def main():
    with process_group() as (rank, world_size, device):
        slow = world_size - 1
        # The only thing that a timeout changes: how long a rank waits for the others.
        group = dist.new_group(timeout=timedelta(seconds=PATIENCE))
        DDP(torch.nn.Linear(1, 1).to(device))  # the first DDP imports for seconds
        rows = train(rank == slow, device, group)
        ends = {label: end for label, _, end in rows}
        for before in NAPS:
            nap_end = ends.get(f"nap before {before}", 0.0)
            woke = torch.tensor(nap_end, dtype=torch.float64)
            dist.broadcast(woke, src=slow)  # every rank now holds the sleeper's nap_end
            meeting = before.replace("forward", "backward")
            if ends[meeting] < woke.item():
                raise AssertionError(f"{meeting} ended before rank {slow} woke")
            what = f"napped before {before}"
            if rank != slow:
                what = f"waited for rank {slow} in {meeting}"
            print(f"[rank {rank}] {what}", flush=True)
        zero = torch.tensor(rows[0][1], dtype=torch.float64)
        dist.all_reduce(zero, dist.ReduceOp.MIN)  # every rank now has the first start
        rows = [[label, *(t - zero.item() for t in times)] for label, *times in rows]
        print(json.dumps({"rows": rows}), flush=True)


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
