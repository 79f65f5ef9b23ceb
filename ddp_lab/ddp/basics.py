"""DistributedDataParallel does by itself what ddp/by_hand.py spells out.

    torchrun --standalone --nproc-per-node 2 ddp_lab/ddp/basics.py

Written by notebooks/03_ddp_basics.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

BATCH, STEPS, RATE = 24, 3, 0.1


def make_batch(device):
    """Samples of y = 2a - b, the same in every process."""
    x = torch.randn(BATCH, 2, generator=torch.Generator().manual_seed(1))  # (24, 2)
    return x.to(device), (x @ torch.tensor([[2.0], [-1.0]])).to(device)  # (24, 1)


def make_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=RATE)


def numbers(tensor):
    """The numbers of a tensor, short enough to compare by eye."""
    return " ".join(f"{number:+.3f}" for number in tensor.flatten().tolist())


def compare_with_one_process(weight, device):
    """Fail if one process with the whole batch ends with other weights."""
    x, y = make_batch(device)
    torch.manual_seed(0)
    model = torch.nn.Linear(2, 1, bias=False).to(device)
    optimizer = make_optimizer(model)
    for _ in range(STEPS):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    if not torch.allclose(weight, model.weight, atol=1e-5):
        ends = f"the weights are {numbers(weight)}"
        raise AssertionError(f"{ends}; one process has {numbers(model.weight)}")


def main(rank, world_size, device):
    x, y = make_batch(device)
    if BATCH % world_size:
        raise SystemExit(f"{world_size} ranks cannot share a batch of {BATCH}")
    x, y = x[rank::world_size], y[rank::world_size]  # (24 / world_size, ...)
    torch.manual_seed(rank)
    model = torch.nn.Linear(2, 1, bias=False).to(device)
    weight = model.weight  # (1, 2)
    model = DDP(model)  # every rank now holds rank 0's weights
    optimizer = make_optimizer(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        line = f"loss {loss:.2f}, gradient {numbers(weight.grad)}"
        optimizer.step()
        line += f", weights {numbers(weight)}"
        print(f"[rank {rank}] step {step}: {line}", flush=True)
    compare_with_one_process(weight, device)


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
