"""Exercise: say in advance how many bytes a step will send.

    torchrun --standalone --nproc-per-node 2 ddp_lab/overview/exercise_bytes.py

Two models, drawn anew in each run. The kernel counts the same step; the target is to
be right within 2 %, by arithmetic alone.

    [rank 0] not yet: write estimate()

Written by notebooks/A3_which_road.ipynb.
"""

import gc
import json
import os
import random
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
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel as DDP

CLOSE = 0.02


def estimate(road, world_size, blocks, width, hidden, rows):
    """Return the bytes that a rank sends in a step: forward, backward, gradients.

    Args:
        road: "ddp", "sharded" or "tensor", as in the lesson, with gloo and float32.
        world_size: how many ranks.
        blocks: each a Linear from width to hidden, with its bias, and one back.
        width: what goes into a block, and comes out of it.
        hidden: what is between its two Linears.
        rows: of the batch, on all ranks together.
    """
    raise NotImplementedError


def model_on(road, mesh, blocks, width, hidden):
    """The network on this road, one block after the other."""
    layers = [
        nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))
        for _ in range(blocks)
    ]
    model = nn.Sequential(*layers)
    for block in model:
        if road == "tensor":
            plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
            parallelize_module(block, mesh, plan)
        if road == "sharded":
            fully_shard(block, mesh=mesh)  # gathered forward, and again backward
    if road == "sharded":
        fully_shard(model, mesh=mesh)
    return DDP(model) if road == "ddp" else model


def count(road, mesh, blocks, width, hidden, rows):
    """The bytes that this rank has sent in a step on this road."""
    torch.manual_seed(0)
    model = model_on(road, mesh, blocks, width, hidden)
    share = rows if road == "tensor" else rows // mesh.size()
    x = torch.randn(share, width)
    for _ in range(2):  # the first step also connects and arranges
        before = bytes_sent()
        F.mse_loss(model(x), x).backward()
    return bytes_sent() - before


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


def draw():
    """Two models, the same on all ranks: blocks, width, hidden, rows."""
    models = [
        [random.randint(2, 6), 60 * random.randint(3, 5), 60 * random.randint(6, 16)]
        + [240 * random.choice(rows)]
        for rows in ((1, 2), (5, 6, 7))
    ]
    dist.broadcast_object_list(models)
    return models


def estimated_alone(*asked):
    """What estimate() says, unless it has sent anything to find out."""
    before = bytes_sent()
    answer = float(estimate(*asked))  # also of NumPy or torch
    if bytes_sent() > before + 10_000:  # fewer: NCCL asks its store now and then
        raise AssertionError("estimate() has sent messages: work the bytes out instead")
    return answer


def main(rank, world_size, device):
    if sys.platform != "linux":
        raise SystemExit("the exercise asks Linux what its connections have sent")
    facts = {"solved": True, "counted": [], "estimated": []}
    mesh = init_device_mesh("cpu", (world_size,))  # gloo: it sends over TCP
    for shape in draw():
        for road in ("ddp", "sharded", "tensor"):
            try:
                estimated = estimated_alone(road, world_size, *shape)
            except NotImplementedError:
                print(f"[rank {rank}] not yet: write estimate()", flush=True)
                return {"solved": False}
            counted = count(road, mesh, *shape)
            told = f"{road}: estimated {estimated:.0f}, counted {counted}"
            print(f"[rank {rank}] {told}", flush=True)
            if abs(estimated / counted - 1) > CLOSE:
                raise AssertionError(told)
            facts["counted"].append(counted)
            facts["estimated"].append(estimated)
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
