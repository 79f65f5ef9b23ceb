"""A training that saves when its time is up, leaves, and goes on in the next attempt.

    torchrun --standalone --nproc-per-node 2 ddp_lab/elastic/requeue.py

On a cluster SLURM asks it to stop (sbatch ddp_lab/elastic/requeue.sbatch); alone, it
does so itself:

    [rank 0] starts at step 0
    [rank 0] asked to stop: saved step ...
    [rank 0] starts at step ...
    [rank 0] ends ... away from a run without a stop

Written by notebooks/11_machines_that_fail.ipynb.
"""

import argparse
import gc
import json
import os
import signal
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record

STEPS, STOP = 40, 7
asked = []  # the signals that have asked this rank to stop


def someone_is_asked(device):
    """Tell whether any rank has been asked: all stop after the same step, or none."""
    flag = torch.tensor(float(bool(asked)), device=device)
    dist.all_reduce(flag, dist.ReduceOp.MAX)  # all now hold the same answer
    return bool(flag)


def save(model, optimizer, step, path):
    """Replace the checkpoint as a whole or not at all."""
    if dist.get_rank() == 0:
        saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(saved | {"step": step}, path.with_suffix(".tmp"))
        os.replace(path.with_suffix(".tmp"), path)
        print(f"[rank 0] asked to stop: saved step {step}", flush=True)
    dist.barrier()  # nobody leaves before the file is there


def train(rank, world_size, device, path=None, pause=0.0, stop_at=None):
    """Train from `path` on, if it is there; return the last step and the weights."""
    torch.manual_seed(0)
    model, start = nn.Linear(8, 1).to(device), 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    if path and path.exists():
        saved = torch.load(path, map_location=device, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        start = saved["step"]
    if path:
        print(f"[rank {rank}] starts at step {start}", flush=True)

    for step in range(start + 1, STEPS + 1):
        time.sleep(pause)
        one_step(model, optimizer, step, rank, world_size, device)
        if step == stop_at and rank == world_size - 1:
            os.kill(os.getpid(), signal.SIGTERM)  # one rank is enough
        if path and someone_is_asked(device):
            save(model, optimizer, step, path)
            break
    return step, torch.cat([p.detach().flatten() for p in model.parameters()])


def one_step(model, optimizer, step, rank, world_size, device):
    """Take a step on this rank's rows, which only `step` and `rank` decide."""
    draw = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(16, 8, generator=draw).to(device)  # (16, 8)
    optimizer.zero_grad()
    (model(x).squeeze(1) - x.sum(1)).pow(2).mean().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)  # all now hold the sum
        p.grad /= world_size
    optimizer.step()


@record
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", help="a folder that all nodes see")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds, each step")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    with process_group() as (rank, world_size, device), TemporaryDirectory() as own:
        folder = [args.dir or own]
        dist.broadcast_object_list(folder, src=0)  # all now hold rank 0's name
        os.makedirs(folder[0], exist_ok=True)
        path = Path(folder[0], "run.pt")

        if not args.dir:  # nobody else is going to ask
            train(rank, world_size, device, path, stop_at=STOP)
            asked.clear()

        step, weights = train(rank, world_size, device, path, args.pause)
        if step < STEPS:
            return  # the next attempt goes on
        _, expected = train(rank, world_size, device)  # never stops
        apart = (weights - expected).abs().max().item()
        print(f"[rank {rank}] ends {apart} away from a run without a stop", flush=True)
        print(json.dumps({"apart": apart}), flush=True)
        assert apart == 0, f"the weights are {apart} off, expected 0.0"


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
