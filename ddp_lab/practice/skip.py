"""When one rank cannot take a step, all ranks skip it together.

    torchrun --standalone --nproc-per-node 2 ddp_lab/practice/skip.py

The last rank runs out of memory in step 1 (it only says so; nothing is really full):

    [rank 0] step 0: gradient 0.5
    [rank 0] step 1: skipped

Written by notebooks/05_ddp_in_practice.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

STEPS, FULL = 4, 1  # steps in all; the one for which the last rank has no memory


def forward(model, x, full):
    """The loss, unless this batch is one too large."""
    output = model(x)  # (1, 1)
    if full:
        raise torch.OutOfMemoryError("so we say")
    return output.sum()


def train_step(model, x, full):
    """Compute one step's gradient, or return None if any rank could not."""
    try:
        loss = forward(model, x, full)
    except torch.OutOfMemoryError:
        loss = None
    failed = torch.tensor(float(loss is None), device=x.device)
    dist.all_reduce(failed, dist.ReduceOp.MAX)  # all ranks now hold 1 if any failed
    if failed:
        return None  # on all ranks, so that all come to the same next backward()
    loss.backward()
    return round(model.module.weight.grad.item(), 3)


def main(rank, world_size, device):
    model = DDP(torch.nn.Linear(1, 1, bias=False).to(device))
    gradients = []
    for step in range(STEPS):
        model.zero_grad()
        x = torch.full((1, 1), 10.0 * step + rank, device=device)
        full = step == FULL and rank == world_size - 1
        gradient = train_step(model, x, full)
        gradients.append(gradient)
        line = "skipped" if gradient is None else f"gradient {gradient}"
        print(f"[rank {rank}] step {step}: {line}", flush=True)
        expected = 10.0 * step + (world_size - 1) / 2  # the mean of all ranks
        if gradient != (None if step == FULL else expected):
            raise AssertionError(f"{line} in step {step}, expected {expected}")
    return {"gradients": gradients}


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
