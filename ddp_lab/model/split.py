"""One network on two devices of one process, and DDP around such networks.

    torchrun --standalone --nproc-per-node 2 ddp_lab/model/split.py

Written by notebooks/14_model_parallel.ipynb.
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
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

SAMPLES, STEPS = 6, 3  # for each rank in a step


class SplitNet(nn.Module):
    """Its first half is on one device, its second half on another."""

    def __init__(self, dev0, dev1):
        super().__init__()
        self.dev0, self.dev1 = dev0, dev1
        self.first = nn.Sequential(nn.Linear(16, 64, device=dev0), nn.ReLU())
        self.second = nn.Linear(64, 10, device=dev1)

    def forward(self, x):
        hidden = self.first(x.to(self.dev0))  # (batch, 64) on dev0
        # Autograd records the copy: backward will carry the gradient back to dev0.
        return self.second(hidden.to(self.dev1))  # (batch, 10) on dev1


def rehearse():
    """Send a batch through two devices that do not mix, as two GPUs do not."""
    with FakeTensorMode():
        net = SplitNet(torch.device("cpu"), torch.device("meta"))
        net(torch.zeros(SAMPLES, 16))


def two_devices(device):
    """This rank's two devices, and what they really are."""
    local_world_size = int(os.environ["LOCAL_WORLD_SIZE"])
    if torch.cuda.device_count() < 2 * local_world_size:
        return device, device, f"one {device.type}, twice"
    # The first GPUs are one for each rank already; the second ones lie behind them.
    return device, torch.device("cuda", device.index + local_world_size), "two GPUs"


def take_step(net, x, target):
    F.mse_loss(out := net(x), target.to(out.device)).backward()
    with torch.no_grad():
        for p in net.parameters():
            p -= 0.1 * p.grad
            p.grad = None


def train(net, group, batches):
    """Train under DDP; return the model."""
    ddp = DDP(net, process_group=group)  # no device_ids: forward knows the devices
    for x, target in batches:
        take_step(ddp, x, target)  # every rank takes the mean gradient
    return ddp


def main(rank, world_size, device):
    rehearse()
    dev0, dev1, devices = two_devices(device)
    torch.manual_seed(0)  # the same weights and samples on every rank
    net = SplitNet(dev0, dev1)
    held = [sum(p.numel() for p in half.parameters()) for half in net.children()]
    print(f"[rank {rank}] on its devices, {held} parameters", flush=True)

    # process_group() ties NCCL to one GPU per rank; gloo takes tensors of any.
    group = None if dev0 == dev1 else dist.new_group(backend="gloo")
    uncut = copy.deepcopy(nn.Sequential(net.first, net.second)).to(device)
    drawn = torch.randn(STEPS, world_size * SAMPLES, 26).to(device)
    x, target = drawn.split([16, 10], dim=2)  # of all ranks, for each step
    mine = slice(rank * SAMPLES, (rank + 1) * SAMPLES)
    ddp = train(net, group, zip(x[:, mine], target[:, mine], strict=True))
    for samples in zip(x, target, strict=True):
        take_step(uncut, *samples)
    for p, e in zip(ddp.parameters(), uncut.parameters(), strict=True):
        torch.testing.assert_close(p.to(device), e, msg="parameter differs")
    return {"devices": devices, "held": held}


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
