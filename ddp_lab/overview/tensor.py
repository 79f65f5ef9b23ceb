"""Tensor parallel: every rank has all rows, and a part of each layer.

    torchrun --standalone --nproc-per-node 2 ddp_lab/overview/tensor.py

Columns of the first Linear of a block, rows of the second.

Written by notebooks/A3_which_road.ipynb.
"""

import gc
import json
import os
import socket
import stat
import struct
import sys
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.utils._python_dispatch import TorchDispatchMode

BLOCKS, WIDTH, HIDDEN, ROWS = 4, 96, 384, 96
STEPS, RATE, MOMENTUM = 3, 1.0, 0.9


def road(rank, world_size, device):
    """Return the model as this rank has it, and how this rank takes a step."""
    model = network().to(device)
    mesh = init_device_mesh(device.type, (world_size,))
    for block in model:
        plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
        parallelize_module(block, mesh, plan)  # sums at the ends of the block
    x, y = data(device)  # (96, 96) each

    def step(optimizer):
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()

    return model, step


def network():
    """The same weights in every process, and for every road."""
    torch.manual_seed(0)
    sizes = [(WIDTH, HIDDEN), (HIDDEN, WIDTH)]
    blocks = [[nn.Linear(*size) for size in sizes] for _ in range(BLOCKS)]
    return nn.Sequential(*(nn.Sequential(a, nn.ReLU(), b) for a, b in blocks))


def data(device):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(2, ROWS, WIDTH, generator=generator).to(device)


def check(model):
    """Stop unless each weight here is where the textbook has it, in one process."""
    whole, (x, y) = network().double(), data("cpu").double()
    before, speeds = network(), [torch.zeros_like(w) for w in whole.parameters()]
    for _ in range(STEPS):
        gradients = torch.autograd.grad(F.mse_loss(whole(x), y), [*whole.parameters()])
        for w, v, g in zip(whole.parameters(), speeds, gradients, strict=True):
            w.data -= RATE * v.mul_(MOMENTUM).add_(g)
    for name, weight in model.named_parameters():
        name = name.removeprefix("module.")  # so DDP and DataParallel call them
        if isinstance(weight, DTensor):
            weight = weight.full_tensor()  # every rank now holds all of it
        end, start = whole.get_parameter(name), before.get_parameter(name)
        gap = (weight.cpu() - end).abs().max() / (end - start).abs().max()
        if not gap < 1e-3:  # true of nan as well
            raise AssertionError(f"{name} is {gap:.1e} of its way from the truth")


def bytes_sent(last=None):
    """What has left this process over TCP and has arrived, once that is all of it."""
    total = 0
    for fd in map(int, os.listdir("/proc/self/fd") if sys.platform == "linux" else []):
        try:
            if stat.S_ISSOCK(os.fstat(fd).st_mode):
                with socket.fromfd(fd, socket.AF_INET, socket.SOCK_STREAM) as one:
                    info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 128)
                    total += struct.unpack("120xQ", info)[0]
        except OSError:
            pass  # closed by now, or a socket of another kind
    time.sleep(0.1)
    return total if total == last else bytes_sent(total)


def measure(model, optimizer, step):
    """Take a step; return the bytes held, kept and sent here, and the calls made."""
    kept, before = [], bytes_sent()
    for module in model.modules():
        if not list(module.children()):  # a Linear or ReLU: what comes out of it
            module.register_forward_hook(lambda _, __, out: kept.append(here(out)))
    Calls.made = 0
    with Calls():
        step(optimizer)
    sent = bytes_sent() - before
    held = 0
    for weight in model.parameters():
        momentum = optimizer.state[weight].values()
        held += sum(here(tensor) for tensor in (weight, weight.grad, *momentum))
    return {"held": held, "kept": sum(kept), "sent": sent, "calls": Calls.made}


def here(tensor):
    """The bytes of a tensor, or of this rank's part of it."""
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).nbytes


class Calls(TorchDispatchMode):
    """Count what torch.distributed is told to send, by any part of PyTorch."""

    made = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if "c10d" in function.namespace:
            others = ("recv", "wait", "wrap", "barrier")
            Calls.made += not any(word in str(function) for word in others)
        return function(*args, **(kwargs or {}))


def main(rank, world_size, device):
    # Ranks that share a GPU: gloo can gather only what is in host memory.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    return train(rank, world_size, device)


def train(rank, world_size, device):
    """Take the steps on this road; measure the last one, check the end."""
    model, step = road(rank, world_size, device)
    optimizer = torch.optim.SGD(model.parameters(), RATE, MOMENTUM)
    for _ in range(STEPS - 1):
        step(optimizer)
    facts = measure(model, optimizer, step)
    check(model)
    told = "holds {held} bytes, keeps {kept}, sends {sent} in {calls} calls"
    print(f"[rank {rank}]", told.format(**facts), flush=True)
    counted = sys.platform == "linux" and dist.get_backend() == "gloo"
    return facts | {"counted": counted}


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
