"""Puzzle: four micro-batches under DDP, and one all_reduce, in the last of them.

Until `micro` is written, each rank prints:

    [rank 0] not yet
"""

import faulthandler
import json
import secrets
from contextlib import nullcontext  # noqa: F401  (may be used)

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel as DDP

PATIENCE, MICRO = 10, 4  # seconds; micro-batches


def micro(model, sample, turn, last):
    return None  # the cell's function stands here


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
