"""Train with DDP on samples of the line y = 2a - b, one of which has a broken label.

    torchrun --standalone --nproc-per-node 2 ddp_lab/clinic/patient_1.py

Written by notebooks/08_when_it_hangs.ipynb.
"""

import copy
import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SAMPLES, BATCH, BROKEN = 48, 2, 25


def train(model, loader):
    """One epoch; return how many steps it took."""
    optimizer, steps = torch.optim.SGD(model.parameters(), lr=0.1), 0
    for x, y in loader:
        loss = F.mse_loss(model(x), y)
        if loss.isnan():
            continue  # one broken label must not spoil all weights
        optimizer.zero_grad()
        loss.backward()  # every rank now holds the mean gradient of all ranks
        optimizer.step()
        steps += 1
    return steps


def main(rank, world_size, device):
    if SAMPLES % (BATCH * world_size):
        raise SystemExit(f"{world_size} ranks cannot share {SAMPLES} samples in twos")
    torch.manual_seed(0)  # on every rank the same samples and weights
    x = torch.randn(SAMPLES, 2, device=device)
    y = x @ torch.tensor([[2.0], [-1.0]], device=device)  # (48, 1)
    y[BROKEN] = torch.nan
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data, shuffle=False)
    loader = DataLoader(data, BATCH, sampler=sampler)
    plain = nn.Linear(2, 1).to(device)
    model = DDP(copy.deepcopy(plain))
    print(f"[rank {rank}] has {len(loader)} batches", flush=True)
    steps = train(model, loader)
    dist.barrier()  # no rank goes on before all have trained
    print(f"[rank {rank}] took {steps} of {len(loader)} steps", flush=True)
    train(plain, DataLoader(data, BATCH * world_size))  # the truth: in one process
    weights, expected = model.module.weight, plain.weight
    if not torch.allclose(weights, expected):
        raise AssertionError(f"{weights.tolist()}, expected {expected.tolist()}")
    return {"steps": steps}


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
