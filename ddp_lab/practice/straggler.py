"""A straggler: in which call do the other ranks lose the time?

    torchrun --standalone --nproc-per-node 2 ddp_lab/practice/straggler.py

    [rank 0] was in ... when rank 1 woke

Written by notebooks/05_ddp_in_practice.ipynb.
"""

import gc
import json
import os
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS, SLEEPY, NAP = 4, 2, 0.5  # steps; the one in which a rank naps; seconds


@contextmanager
def timed(did, label):
    """Note [label, start, end], by the clock that all ranks of a machine share."""
    start = time.time()
    yield
    did.append([label, start, time.time()])


def train(naps, device):
    """Train; return what this rank did, and when."""
    did, batch = [], torch.ones(8, 4, device=device)
    model = DDP(torch.nn.Linear(4, 4).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        if naps and step == SLEEPY:
            with timed(did, f"nap {step}"):
                time.sleep(NAP)  # as a longer batch or a slower disk would
        with timed(did, f"forward {step}"):
            loss = model(batch).square().mean()
        with timed(did, f"backward {step}"):
            loss.backward()
            # On a GPU, backward() does not hold up the host; asking for a number does.
            model.module.bias.grad.sum().item()
        with timed(did, f"step {step}"):
            optimizer.step()
            optimizer.zero_grad()
    return did


def main(rank, world_size, device):
    train(False, device)  # the first DDP imports for seconds
    slow, meeting = world_size - 1, f"backward {SLEEPY}"
    did = train(rank == slow, device)
    ends = {label: end for label, _, end in did}
    woke = ends[f"nap {SLEEPY}"] if rank == slow else 0
    woke = torch.tensor(woke, dtype=torch.float64)
    dist.broadcast(woke, src=slow)  # every rank now knows when the sleeper woke
    if rank == slow:
        print(f"[rank {rank}] napped before forward {SLEEPY}", flush=True)
    else:
        during = [label for label, _, end in did if end >= woke.item()][0]
        print(f"[rank {rank}] was in {during} when rank {slow} woke", flush=True)
    if ends[meeting] < woke.item():
        raise AssertionError(f"{meeting} ended before rank {slow} woke")
    return {"did": did}


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
