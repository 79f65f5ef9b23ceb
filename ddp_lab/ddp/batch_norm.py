"""BatchNorm under DDP: each rank normalizes by its own samples only.

    torchrun --standalone --nproc-per-node 2 ddp_lab/ddp/batch_norm.py

Written by notebooks/03_ddp_basics.ipynb.
"""

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

SAMPLES, STEPS, RATE = 24, 3, 0.1
ROUNDING = 1e-6  # what another order of adding may change


def make_model(norm, device):
    """The same first weights everywhere, with a BatchNorm in the middle or without."""
    torch.manual_seed(0)
    middle = nn.BatchNorm1d(8) if norm else nn.Identity()
    layers = nn.Linear(4, 8), middle, nn.Tanh(), nn.Linear(8, 1)
    return nn.Sequential(*layers).to(device)


def make_data(device):
    """Samples of a bent surface, the same in every process."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(SAMPLES, 4, generator=generator)  # (24, 4)
    return x.to(device), x.sin().sum(1, keepdim=True).to(device)  # (24, 1)


def train(model, shards):
    """Train on the mean of the losses of `shards`, each sent through by itself."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        sum(F.mse_loss(model(x), y) / len(shards) for x, y in shards).backward()
        optimizer.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def compare(norm, rank, world_size, device):
    """Train under DDP, and in one process in two ways; return how far apart."""
    x, y = make_data(device)
    shards = [(x[r::world_size], y[r::world_size]) for r in range(world_size)]
    whole_model = make_model(norm, device)
    whole = train(whole_model, [(x, y)])  # one process, one batch
    by_shard = train(make_model(norm, device), shards)  # one process, every shard alone

    ddp = DDP(make_model(norm, device))
    weights = train(ddp, [shards[rank]])
    apart = [(weights - truth).abs().max().item() for truth in (whole, by_shard)]
    facts = {"apart": apart, "weights": weights.tolist()}
    if norm:
        means = [m[1].running_mean[0].item() for m in (ddp.module, whole_model)]
        facts["running_mean"] = means  # this rank's, and one process's
    return facts


def main(rank, world_size, device):
    if SAMPLES % world_size or SAMPLES == world_size:
        raise SystemExit(f"{world_size} ranks cannot share {SAMPLES} samples")
    facts = {}
    for name, norm in {"without": False, "with": True}.items():
        facts[name] = compare(norm, rank, world_size, device)
        whole, shards = facts[name]["apart"]
        far = f"{whole:.3f} from the whole batch, {shards:.3f} from the shards"
        print(f"[rank {rank}] {name} BatchNorm: {far}", flush=True)
        if shards > ROUNDING or (whole > ROUNDING) != norm:
            raise AssertionError(f"{name} BatchNorm: {far}")
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
