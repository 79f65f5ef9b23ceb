"""One network over two devices of one process, and DDP over such networks.

    torchrun --standalone --nproc-per-node 2 ddp_lab/model/split.py

    [rank 0] ... parameters on device 0, ... on device 1

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

ROWS, STEPS = 6, 3  # rows of data for each rank, training steps


class SplitNet(nn.Module):
    """Its first half lives on one device, its second half on another."""

    def __init__(self, dev0, dev1):
        super().__init__()
        self.dev0, self.dev1 = dev0, dev1
        self.first = nn.Sequential(nn.Linear(16, 64, device=dev0), nn.ReLU())
        self.second = nn.Linear(64, 10, device=dev1)

    def forward(self, x):
        hidden = self.first(x.to(self.dev0))  # (rows, 64) on dev0
        # Autograd records the copy: backward will carry the gradient back to dev0.
        return self.second(hidden.to(self.dev1))  # (rows, 10) on dev1


def rehearse():
    """Send a batch through where a forgotten .to() is noticed, unlike on one CPU."""
    with FakeTensorMode():  # tensors without data, on devices that do not mix
        net = SplitNet(torch.device("cpu"), torch.device("meta"))
        net(torch.zeros(ROWS, 16))


def two_devices(device):
    """This rank's two devices, and what to call them honestly."""
    local_world_size = int(os.environ["LOCAL_WORLD_SIZE"])
    if torch.cuda.device_count() < 2 * local_world_size:  # gloo knows no others
        return device, device, f"one {device.type}, twice"
    # The first GPUs are one for each rank already; the second ones lie behind them.
    return device, torch.device("cuda", device.index + local_world_size), "two GPUs"


def train_step(net, x, target):
    F.mse_loss(out := net(x), target.to(out.device)).backward()
    with torch.no_grad():
        for p in net.parameters():
            p -= 0.1 * p.grad
            p.grad = None


def main(rank, world_size, device):
    rehearse()
    print(f"[rank {rank}] rehearsed: nothing is on the wrong device", flush=True)
    dev0, dev1, devices = two_devices(device)
    net = SplitNet(dev0, dev1)
    held = [sum(p.numel() for p in half.parameters()) for half in net.children()]
    print(f"[rank {rank}] on its devices, {held} parameters", flush=True)

    # process_group() ties NCCL to one GPU per rank; gloo takes tensors of any.
    group = None if dev0 == dev1 else dist.new_group(backend="gloo")
    ddp = DDP(net, process_group=group)  # all ranks now hold rank 0's weights
    expected = copy.deepcopy(nn.Sequential(net.first, net.second)).to(device)
    torch.manual_seed(0)  # the same data on every rank, of which each takes its rows
    rows = slice(rank * ROWS, (rank + 1) * ROWS)
    for _ in range(STEPS):
        data = torch.randn(world_size * ROWS, 26).to(device)
        x, target = data[:, :16], data[:, 16:]
        train_step(ddp, x[rows], target[rows])  # every rank takes the mean gradient
        train_step(expected, x, target)
        for p, e in zip(ddp.parameters(), expected.parameters(), strict=True):
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
