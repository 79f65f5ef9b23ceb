"""Rank 0 saves, all ranks wait, all load; and what the weights alone forget.

    torchrun --standalone --nproc-per-node 2 ddp_lab/checkpoint/basics.py

Written by notebooks/06_checkpointing.ipynb.
"""

import argparse
import gc
import json
import os
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

SLOW_DISK = 1.0  # seconds, as for a large model
STEPS, SAVE_EVERY = 4, 2

LEARNING_RATE, MOMENTUM = 1.0, 0.5


def save(ddp, step, path, rank):
    """Save once for all ranks; no rank returns before the file is whole."""
    if rank == 0:
        time.sleep(SLOW_DISK)
        write({"step": step, "model": ddp.module.state_dict()}, path)
        print(f"[rank {rank}] saved step {step}", flush=True)
    dist.barrier()  # no rank goes on before the file is whole


def write(saved, path):
    """Replace the file at `path` as a whole, or not at all."""
    temporary = path.with_suffix(".tmp")
    torch.save(saved, temporary)
    os.replace(temporary, path)  # until here, the checkpoint before is whole


def build(device):
    """Return a model of eight weights and its optimizer, as a run does that begins."""
    model = nn.Linear(8, 1, bias=False, device=device)  # weight: (1, 8)
    ddp = DDP(model)  # all ranks now hold rank 0's weights
    optimizer = torch.optim.SGD(ddp.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    return ddp, optimizer


def train_step(ddp, optimizer, device):
    """Take one step whose gradient is 1 for every weight; return how far they moved."""
    before = ddp.module.weight.detach().clone()
    optimizer.zero_grad()
    ddp(torch.ones(1, 8, device=device)).sum().backward()
    optimizer.step()
    return round((before - ddp.module.weight).mean().item(), 4)


def train_and_load(path, rank, device):
    """Train and save; load; take one more step, in the old run and in the new one."""
    ddp, optimizer = build(device)
    for step in range(1, STEPS + 1):
        train_step(ddp, optimizer, device)
        if step % SAVE_EVERY == 0:
            save(ddp, step, path, rank)

    saved = torch.load(path, map_location=device, weights_only=True)
    step = saved["step"]
    print(f"[rank {rank}] loaded step {step}", flush=True)
    assert step == STEPS, f"the step in the file is {step}, expected {STEPS}"
    resumed, new_optimizer = build(device)
    resumed.module.load_state_dict(saved["model"])
    assert torch.equal(resumed.module.weight, ddp.module.weight), "not the saved ones"

    moved = train_step(ddp, optimizer, device)
    anew = train_step(resumed, new_optimizer, device)
    told = f"moves each weight by {moved}; in the new run by {anew}"
    print(f"[rank {rank}] step {STEPS + 1} {told}", flush=True)
    # Velocity is 1, then 1 + m, 1 + m + m², ...; a new optimizer begins with 1.
    expected = round(sum(MOMENTUM**s for s in range(STEPS + 1)), 4), 1.0
    assert (moved, anew) == expected, f"it {told}, expected {expected}"
    return {"step": step, "moved": [moved, anew], "ddp_keys": list(ddp.state_dict())}


@contextmanager
def shared_folder():
    """Yield the folder of --dir, or a temporary one: the same on all ranks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", help="a folder that all ranks see")
    with TemporaryDirectory() as own:
        folder = [parser.parse_args().dir or own]
        dist.broadcast_object_list(folder, src=0)  # all now hold rank 0's name
        os.makedirs(folder[0], exist_ok=True)
        yield Path(folder[0])
        dist.barrier()  # or rank 0 could delete what others have yet to read


def main(rank, world_size, device):
    torch.manual_seed(rank)  # every rank begins elsewhere; DDP makes them equal
    with shared_folder() as folder:
        return train_and_load(folder / "model.pt", rank, device)


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
