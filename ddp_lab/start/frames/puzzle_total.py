"""Puzzle: the sum of all ranks' numbers, and each rank keeps its own.

Until `total` is written, each rank prints:

    [rank 0] not yet
"""

import faulthandler
import json
import secrets

import torch
import torch._dynamo
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

PATIENCE = 3  # seconds; torch._dynamo, which Diary needs, is imported above
NAMES = {"allgather": "all_gather", "allreduce": "all_reduce"}


def total(mine):
    return None  # the cell's function stands here


def goal(rank, brought):
    """What this rank calls, and what it holds in the end: the sum, and its own."""
    return ["all_reduce"], [sum(brought), brought[rank]]


class Diary(TorchDispatchMode):
    """Keeps each call of the process group, and tells it before it is made."""

    def __init__(self, brought, tells):
        super().__init__()
        self.calls, self.tells = [["brings", None, str(brought)]], tells

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        library, name, _ = str(function).split(".")
        if "c10d" in library and not name.startswith(("wait", "_wrap")):
            name = name.strip("_").removesuffix("_base")
            self.calls.append([NAMES.get(name, name), None, ""])
            if self.tells:
                print(json.dumps({"yours": {"calls": self.calls}}), flush=True)
        return function(*args, **(kwargs or {}))


def attempt(rank, brought, tells):
    """Try the reader's lines; return what all ranks did, and what they should have."""
    calls, holds = goal(rank, brought)
    diary = Diary(brought[rank], tells)
    did = [diary.calls[0], *([call, None, ""] for call in calls)]
    target = {"calls": did, "holds": holds}
    if tells:
        print(json.dumps({"target": target}), flush=True)
    # If this rank waits forever, it shows its line, and ends.
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    mine = torch.tensor([brought[rank]])
    with diary:
        got = total(mine)
    holding = None if got is None else [int(got), mine.item()]
    yours = {"calls": diary.calls, "holds": holding}
    if tells and (len(diary.calls) > 1 or holding):
        print(json.dumps({"yours": yours}), flush=True)
    results = [None] * len(brought)
    # Every rank now knows what all did, so that all come to one verdict.
    dist.all_gather_object(results, (yours, target))
    faulthandler.cancel_dump_traceback_later()  # an unfinished message stalls it
    return zip(*results, strict=True)


def draw_numbers(world_size):
    """What the ranks bring: first numbers to look at, then some that are drawn."""
    shown = [[5, 20, 3, 40][rank % 4] for rank in range(world_size)]
    drawn = [[secrets.randbelow(90) for _ in shown]]
    dist.broadcast_object_list(drawn)  # rank 0's numbers are now on all ranks
    return shown, *drawn


def main(rank, world_size, device):
    for number, brought in enumerate(draw_numbers(world_size)):
        yours, targets = attempt(rank, brought, tells=number == 0)
        if not any(len(did["calls"]) > 1 or did["holds"] for did in yours):
            print(f"[rank {rank}] not yet", flush=True)
            return {"solved": False}
        if yours != targets:
            wrong = [r for r in range(world_size) if yours[r] != targets[r]]
            raise AssertionError(f"ranks {wrong} differ from the target")
    print(f"[rank {rank}] as the target", flush=True)
    return {"solved": True}
