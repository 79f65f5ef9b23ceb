"""Puzzle: rank 0 sends its number to the last rank and gets the double back.

Until `echo` is written, each rank prints:

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


def echo(mine, rank, last):
    return None  # the cell's function stands here


def goal(rank, numbers):
    """What this rank sends and holds in the end."""
    last, number = len(numbers) - 1, numbers[0]
    if rank == 0:
        calls = [["send", last, str(number)], ["recv", last, ""]]
        return {"calls": calls, "holds": [2 * number]}
    calls = [["recv", 0, ""], ["send", 0, str(2 * number)]]
    return {"calls": calls if rank == last else [], "holds": None}


class Diary(TorchDispatchMode):
    """Keeps each call of the process group, and tells it before it is made."""

    def __init__(self, tells):
        super().__init__()
        self.calls, self.tells = [], tells

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        library, name, _ = str(function).split(".")
        if "c10d" in library:
            name = name.strip("_").removesuffix("_any_source")
            peer = args[2] if name in ("send", "recv") else None
            text = "" if name == "recv" else str(args[0][0].tolist()).strip("[]")
            self.calls.append([name, peer, text])
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
    with Diary(tells) as diary:
        got = echo(mine, rank, len(numbers) - 1)
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
    shown = [5 + r for r in range(world_size)]
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
