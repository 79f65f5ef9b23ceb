"""Puzzle: ranks 0 and 1 swap their numbers, so do 2 and 3, and none waits forever.

Until `swap` is written, each rank prints:

    [rank 0] not yet
"""

import faulthandler
import json
import secrets
import time

import torch
import torch._dynamo
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

PATIENCE, LATE = 3, 0.2  # seconds; torch._dynamo, for Diary, is imported above


def swap(mine, rank, partner):
    return None  # the cell's function stands here


def goal(rank, numbers):
    """What this rank sends and holds in the end."""
    partner = rank ^ 1  # 1, 0, 3, 2...
    if partner == len(numbers):  # the last of an odd number has none
        return {"calls": [], "holds": None}
    calls = [["send", partner, str(numbers[rank])], ["recv", partner, ""]]
    return {"calls": calls, "holds": [numbers[partner]]}


class Diary(TorchDispatchMode):
    """Keeps each call of the process group, and tells it before it is made.

    A late rank takes its time before it receives: a send that its rank has not waited
    for is lost by then.
    """

    def __init__(self, tells, late):
        super().__init__()
        self.calls, self.tells, self.late = [], tells, late

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        library, name, _ = str(function).split(".")
        if "c10d" in library:
            name = name.strip("_").removesuffix("_any_source")
            peer = args[2] if name in ("send", "recv") else None
            text = "" if name == "recv" else str(args[0][0].tolist()).strip("[]")
            self.calls.append([name, peer, text])
            if name == "recv" and self.late:
                time.sleep(LATE)
            if self.tells:
                print(json.dumps({"yours": {"calls": self.calls}}), flush=True)
        return function(*args, **(kwargs or {}))


def attempt(rank, numbers, tells):
    """Try the reader's lines; return what all ranks did, and what they should have."""
    target = goal(rank, numbers)
    if tells:
        print(json.dumps({"target": target}), flush=True)
    mine = torch.tensor([numbers[rank]])  # (1,)
    # If this rank waits forever, it shows its line, and ends.
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    with Diary(tells, late=rank % 2 and not tells) as diary:
        got = swap(mine, rank, rank ^ 1) if rank ^ 1 < len(numbers) else None
    holds = None if got is None else torch.as_tensor(got).flatten().tolist()
    yours = {"calls": diary.calls, "holds": holds}
    if tells:
        print(json.dumps({"yours": yours}), flush=True)
    results = [None] * len(numbers)
    # Every rank now knows what all did, so that all come to one verdict.
    dist.all_gather_object(results, (compared(yours), compared(target)))
    faulthandler.cancel_dump_traceback_later()  # an unfinished message stalls it
    return zip(*results, strict=True)


def compared(trace):
    """What each rank sends and holds; who receives follows from it."""
    sent = [call for call in trace["calls"] if call[0] != "recv"]
    return sorted(sent), trace["holds"]


def main(rank, world_size, device):
    drawn = [[secrets.randbelow(90) + 10 for _ in range(world_size)]]
    dist.broadcast_object_list(drawn)  # rank 0's numbers are now on all ranks
    shown = [10 * r + 10 for r in range(world_size)]
    for numbers in (shown, *drawn):
        results, goals = attempt(rank, numbers, tells=numbers is shown)
        if not any(calls or held for calls, held in results):
            print(f"[rank {rank}] not yet", flush=True)
            return {"solved": False}
        if results != goals:
            wrong = [r for r in range(world_size) if results[r] != goals[r]]
            raise AssertionError(f"ranks {wrong} differ from the target")
    print(f"[rank {rank}] as the target", flush=True)
    return {"solved": True}
