"""Puzzle: four micro-batches under DDP, and one all_reduce, in the last of them.

    torchrun --standalone --nproc-per-node 2 ddp_lab/practice/puzzle_micro.py

Until `micro` is written, each rank prints:

    [rank 0] not yet

Written by notebooks/05_ddp_in_practice.ipynb.
"""

import faulthandler
import gc
import json
import os
import secrets
from contextlib import contextmanager, nullcontext

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

PATIENCE, MICRO = 10, 4  # seconds; micro-batches


def micro(model, sample, turn, last):
    """Run forward and backward on one micro-batch; called for turn = 0, 1, ..., last.

    model, under DDP, has one weight; model(sample) is the loss. After the last turn the
    weight's .grad must be the mean over the samples of all turns and ranks, and no turn
    but the last may communicate.
    """
    return None  # your code here


def accumulate(samples, device):
    """Let the reader's lines see each sample; return the calls and the gradient."""
    model, calls = DDP(torch.nn.Linear(1, 1, bias=False).to(device)), []

    def hook(_, bucket):
        calls.append(["all_reduce", None, ""])
        return allreduce_hook(None, bucket)  # every rank now holds the mean of all

    model.register_comm_hook(None, hook)
    for turn, sample in enumerate(samples):
        calls.append(["micro-batch", None, str(turn + 1)])
        # If this rank waits forever, it shows its line, and ends.
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        micro(model, torch.tensor([[float(sample)]], device=device), turn, MICRO - 1)
    gradient = model.module.weight.grad  # of sample i it is i
    holds = None if gradient is None else [round(gradient.item(), 3)]
    return {"calls": calls, "holds": holds}


def goal(brought):
    mean = sum(sum(samples) for samples in brought) / len(brought) / MICRO
    calls = [["micro-batch", None, str(turn + 1)] for turn in range(MICRO)]
    return {"calls": [*calls, ["all_reduce", None, ""]], "holds": [round(mean, 3)]}


def main(rank, world_size, device):
    shown = [[MICRO * r + i + 1 for i in range(MICRO)] for r in range(world_size)]
    drawn = [[[secrets.randbelow(90) for _ in row] for row in shown]]
    dist.broadcast_object_list(drawn)  # rank 0's numbers are now on all ranks
    for brought in (shown, *drawn):
        target, first = goal(brought), brought is shown
        if first:
            print(json.dumps({"target": target}), flush=True)
        yours = accumulate(brought[rank], device)
        if first and yours["holds"]:
            print(json.dumps({"yours": yours}), flush=True)
        everyone = [None] * world_size
        # Every rank now knows what all did, so that all come to one verdict.
        dist.all_gather_object(everyone, yours)
        faulthandler.cancel_dump_traceback_later()  # an unfinished message stalls it
        if not any(did["holds"] for did in everyone):
            print(f"[rank {rank}] not yet", flush=True)
            return {"solved": False}
        if wrong := [r for r in range(world_size) if everyone[r] != target]:
            raise AssertionError(f"ranks {wrong} differ from the target")
    print(f"[rank {rank}] as the target", flush=True)
    return {"solved": True}


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
