"""Today's tools for both cuts: pipelining's schedules, and a tensor-parallel plan.

    torchrun --standalone --nproc-per-node 2 ddp_lab/model/builtin.py

Written by notebooks/14_model_parallel.ipynb.
"""

import copy
import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.distributed.tensor.parallel as tp
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode

WIDTH, HIDDEN, ROWS = 8, 24, 24


def pipeline(schedule_class, net, rank, world_size, batch, target):
    """One block on each rank; the schedule does the sending and the waiting."""
    stage = PipelineStage(copy.deepcopy(net[rank]), rank, world_size, batch.device)
    schedule = schedule_class(stage, n_microbatches=8, loss_fn=F.mse_loss)
    # Only the first rank needs the batch, and only the last one the target.
    inputs, is_last = [batch] if rank == 0 else [], rank == world_size - 1
    # Forward and backward: this rank then holds its own block's gradients.
    schedule.step(*inputs, target=target if is_last else None)
    return list(stage.submod.parameters()), net[rank].parameters()


def tensor_parallel(net, world_size, batch, target):
    """Every block on all ranks: its first Linear by columns, its second by rows."""
    mesh = init_device_mesh(batch.device.type, (world_size,))
    split = copy.deepcopy(net)
    for block in split:
        # The weights become DTensors, of which each rank holds its share.
        plan = {"0": tp.ColwiseParallel(), "2": tp.RowwiseParallel()}
        tp.parallelize_module(block, mesh, plan)
    with CommDebugMode() as forward:
        loss = F.mse_loss(split(batch), target)
    with CommDebugMode() as backward:
        loss.backward()
    sums = [forward.get_total_counts(), backward.get_total_counts()]
    return list(split.parameters()), net.parameters(), sums


def check(parameters, expected):
    """Compare all gradients; return how many numbers of the weights this rank holds."""
    held = 0
    for p, e in zip(parameters, expected, strict=True):
        parts = isinstance(p, DTensor)
        # full_tensor() gathers the shares: every rank holds the whole gradient.
        grad = p.grad.full_tensor() if parts else p.grad
        torch.testing.assert_close(grad, e.grad, msg="gradient differs")
        held += p.to_local().numel() if parts else p.numel()
    return held


def main(rank, world_size, device):
    # Ranks that share a GPU: gloo can send and gather only what is in host memory.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    torch.manual_seed(0)
    blocks = [
        nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH))
        for _ in range(world_size)
    ]
    net = nn.Sequential(*blocks).to(device)
    batch, target = torch.randn(2, ROWS, WIDTH).to(device)
    F.mse_loss(net(batch), target).backward()  # the truth: the unsplit network
    whole, held = sum(p.numel() for p in net.parameters()), {}
    for schedule in (ScheduleGPipe, Schedule1F1B):
        compared = pipeline(schedule, net, rank, world_size, batch, target)
        held[schedule.__name__] = check(*compared)
    *compared, sums = tensor_parallel(net, world_size, batch, target)
    held["parallelize_module"] = check(*compared)
    # d loss / d batch is not needed, so the first block has no sum backward.
    if sums != [world_size, world_size - 1]:
        raise AssertionError(f"all_reduces forward, backward: {sums}")
    for name, count in held.items():
        told = f"{name}: as unsplit, with {count} of {whole} weights"
        print(f"[rank {rank}] {told}", flush=True)
    return {"held": held, "whole": whole, "sums": sums}


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
