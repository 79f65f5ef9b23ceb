"""One slow rank: where the others wait for it, and for how long they will.

    torchrun --standalone --nproc-per-node 2 ddp_lab/practice/straggler.py

The last rank naps twice. The others stop at the next call that needs all ranks:

    [rank 0] waited for rank 1 in DDP()
    [rank 1] napped before DDP()

Written by notebooks/05_ddp_in_practice.ipynb.
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

NAPS, TIMEOUT = {"DDP()": 0.5, "forward 2": 0.5}, 60.0  # in seconds


def nap(naps, rows, before):
    """Make this rank late, as a longer batch or a slower disk would."""
    if before in naps:
        with timed(rows, f"nap before {before}"):
            time.sleep(naps[before])


@contextmanager
def timed(rows, label):
    """Note [label, start, end], by the clock that all ranks of a machine share."""
    start = time.time()
    yield
    rows.append([label, start, time.time()])


def train(naps, device, group):
    """Train, napping before some calls; return what this rank did, and when."""
    rows, batch = [], torch.ones(8, 4, device=device)
    model = torch.nn.Linear(4, 4).to(device)
    nap(naps, rows, "DDP()")
    with timed(rows, "DDP()"):
        # First all ranks compare their models, so none passes before all have come.
        model = DDP(model, process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        nap(naps, rows, f"forward {step}")
        with timed(rows, f"forward {step}"):
            loss = model(batch).square().mean()
        with timed(rows, f"backward {step}"):
            loss.backward()
            # On a GPU, backward() does not hold up the host; asking for a number does.
            model.module.bias.grad.sum().item()
        with timed(rows, f"step {step}"):
            optimizer.step()  # needs no other rank: the gradients are there already
            optimizer.zero_grad()
    return rows


def main(rank, world_size, device):
    slow = world_size - 1
    group = dist.new_group(timeout=timedelta(seconds=TIMEOUT))
    DDP(torch.nn.Linear(1, 1).to(device))  # the first DDP imports for seconds
    rows = train(NAPS if rank == slow else {}, device, group)
    ends = {label: end for label, _, end in rows}
    for before in NAPS:
        meeting = before.replace("forward", "backward")
        woke = torch.tensor(ends.get(f"nap before {before}", 0), dtype=torch.float64)
        dist.broadcast(woke, src=slow)  # every rank now knows when the sleeper woke
        if ends[meeting] < woke.item():
            raise AssertionError(f"{meeting} ended before rank {slow} woke")
        waited = f"waited for rank {slow} in {meeting}"
        did = f"napped before {before}" if rank == slow else waited
        print(f"[rank {rank}] {did}", flush=True)
    return {"rows": rows}


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
