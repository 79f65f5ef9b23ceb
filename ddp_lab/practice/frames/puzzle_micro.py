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
from torch.utils._python_dispatch import TorchDispatchMode

PATIENCE, MICRO = 10, 4  # seconds; micro-batches in the first try


def micro(model, sample, turn, last):
    return None  # the cell's function stands here


class Diary(TorchDispatchMode):
    """Keeps each all_reduce, whether DDP makes it or the reader's lines."""

    def __init__(self):
        super().__init__()
        self.calls, self.of_ddp = [], False

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        sends = not any(word in str(op) for word in ("wait", "wrap", "broadcast"))
        if "c10d" in op.namespace and sends and not self.of_ddp:
            self.calls.append(["all_reduce", None, ""])
        return op(*args, **(kwargs or {}))


def noted(diary, bucket):
    """DDP's own all_reduce of one bucket; note that it happened."""
    diary.calls.append(["all_reduce", None, ""])
    diary.of_ddp = True  # on a GPU, in another thread
    work = allreduce_hook(None, bucket)  # every rank now holds the mean of all
    diary.of_ddp = False
    return work


def accumulate(samples, device):
    """Let the reader's lines see each sample; return the calls and the gradient."""
    model, diary = DDP(torch.nn.Linear(1, 1, bias=False).to(device)), Diary()
    model.register_comm_hook(diary, noted)
    for turn, sample in enumerate(samples):
        diary.calls.append(["micro-batch", None, str(turn + 1)])
        # If this rank waits forever, it shows its line, and ends.
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        x = torch.tensor([[float(sample)]], device=device)
        with diary:
            micro(model, x, turn, len(samples) - 1)
    gradient = model.module.weight.grad  # of sample i it is i
    holds = None if gradient is None else [round(gradient.item(), 3)]
    return {"calls": diary.calls, "holds": holds}


def goal(brought):
    turns = len(brought[0])
    mean = sum(sum(samples) for samples in brought) / len(brought) / turns
    calls = [["micro-batch", None, str(turn + 1)] for turn in range(turns)]
    return {"calls": [*calls, ["all_reduce", None, ""]], "holds": [round(mean, 3)]}


def main(rank, world_size, device):
    shown = [[MICRO * r + i + 1 for i in range(MICRO)] for r in range(world_size)]
    drawn = [[[secrets.randbelow(90) for _ in row[1:]] for row in shown]]
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
