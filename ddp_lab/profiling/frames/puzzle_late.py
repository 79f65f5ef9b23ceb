"""Puzzle: which rank all others wait for, from when each comes and leaves.

Until `late` is written, each rank prints:

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
NAMES = {"allgather": "all_gather", "all_gather_into_tensor": "all_gather"}


def late(mine):
    return None  # the cell's function stands here


def goal(brought):
    """What each rank calls, and what it holds in the end: who comes last."""
    comes = [came for came, _ in brought]
    return ["all_gather"], [comes.index(max(comes))]


class Diary(TorchDispatchMode):
    """Keeps each call of the process group, and tells it before it is made."""

    def __init__(self, brought, tells):
        super().__init__()
        self.calls, self.tells = [["brings", None, str(brought).strip("[]")]], tells

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
    calls, holds = goal(brought)
    diary = Diary(brought[rank], tells)
    did = [diary.calls[0], *([call, None, ""] for call in calls)]
    target = {"calls": did, "holds": holds}
    if tells:
        print(json.dumps({"target": target}), flush=True)
    # If this rank waits forever, it shows its line, and ends.
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    with diary:
        mine = torch.tensor(brought[rank], dtype=torch.float64)
        got = late(mine)
    holding = None if got is None else rounded(got)
    yours = {"calls": diary.calls, "holds": holding}
    if tells and (len(diary.calls) > 1 or holding):
        print(json.dumps({"yours": yours}), flush=True)
    results = [None] * len(brought)
    # Every rank now knows what all did, so that all come to one verdict.
    dist.all_gather_object(results, (yours, target))
    faulthandler.cancel_dump_traceback_later()  # an unfinished message stalls it
    return zip(*results, strict=True)


def rounded(got):
    numbers = torch.as_tensor(got).flatten().tolist()
    return [round(number, 2) for number in numbers]


def draw(world_size):
    """When ranks come and leave: some to look at, then some that are drawn."""
    shown = [[[21, 82], [81, 83], [23, 84], [22, 82]][r % 4] for r in range(world_size)]
    comes = [10 * place + secrets.randbelow(5) for place in range(world_size)]
    secrets.SystemRandom().shuffle(comes)
    if comes[1] == max(comes):  # here another rank is slow than above
        comes = comes[1:] + comes[:1]
    last = max(comes)  # the slow rank leaves neither as the first nor as the last one
    drawn = [
        [c, last + (2 if c == last else 1 + 2 * (r % 2))] for r, c in enumerate(comes)
    ]
    every = [shown, drawn]
    dist.broadcast_object_list(every)  # rank 0's numbers are now on all ranks
    return every


def main(rank, world_size, device):
    for number, brought in enumerate(draw(world_size)):
        yours, targets = attempt(rank, brought, tells=number == 0)
        if not any(len(did["calls"]) > 1 or did["holds"] for did in yours):
            print(f"[rank {rank}] not yet", flush=True)
            return {"solved": False}
        if yours != targets:
            wrong = [r for r in range(world_size) if yours[r] != targets[r]]
            raise AssertionError(f"ranks {wrong} differ from the target")
    print(f"[rank {rank}] as the target", flush=True)
    return {"solved": True}
