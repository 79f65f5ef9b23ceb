"""Puzzle: buckets leave in one order on all ranks, whatever the order they fill in.

Until `leave` is written, each rank prints:

    [rank 0] not yet
"""

import faulthandler
import json
import secrets

import torch
import torch.distributed as dist

PATIENCE = 3  # seconds


def leave(full, left, send):
    return None  # the cell's function stands here


class Rank:
    """Gets a gradient after the other, and keeps what the reader's lines send."""

    def __init__(self, missing, device, tells):
        self.missing, self.device, self.tells = missing, device, tells
        self.calls, self.holds = [], []

    def send(self, number):
        """The bucket holds its number: so does the mean, if all ranks send it now."""
        self.calls.append(["all_reduce", None, f"bucket {number}"])
        if self.tells:
            print(json.dumps({"yours": {"calls": self.calls}}), flush=True)
        row = torch.tensor(float(number), device=self.device)
        dist.all_reduce(row)  # every rank now holds the sum of all ranks
        self.holds.append(round(row.item() / dist.get_world_size(), 3))

    def gets(self, number):
        """A gradient of this bucket is made: see what the reader's lines do."""
        self.calls.append(["made", None, f"for {number}"])
        self.missing[number] -= 1
        leave([not missing for missing in self.missing], len(self.holds), self.send)


def goal(order):
    """What a rank does whose gradients come in this order, and what it holds."""
    calls, missing, left = [], counts(order), 0
    for number in order:
        calls.append(["made", None, f"for {number}"])
        missing[number] -= 1
        until = next((i for i, n in enumerate(missing) if n), len(missing))
        calls += [["all_reduce", None, f"bucket {i}"] for i in range(left, until)]
        left = until
    return {"calls": calls, "holds": [float(i) for i in range(len(missing))]}


def counts(order):
    """How many gradients fill each bucket."""
    return [order.count(number) for number in range(max(order) + 1)]


def orders(world_size):
    """By rank the buckets of its gradients: first to look at, then some drawn."""
    shown = ([[0, 0, 1], [1, 0, 0]] * world_size)[:world_size]
    gradients, draw = [0, 0, 1, 2, 2, 2, 3], secrets.SystemRandom()
    drawn = [[draw.sample(gradients, 7) for _ in shown] for _ in range(4)]
    drawn.append(([[0, 1, 2], [2, 1, 0]] * world_size)[:world_size])
    dist.broadcast_object_list(drawn)  # rank 0's orders are now on all ranks
    return shown, *drawn


def main(rank, world_size, device):
    for turn, brought in enumerate(orders(world_size)):
        target = goal(brought[rank])
        mine = Rank(counts(brought[rank]), device, tells=turn == 0)
        if turn == 0:
            print(json.dumps({"target": target}), flush=True)
        # If this rank waits forever, it shows its line, and ends.
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        for number in brought[rank]:
            mine.gets(number)
        yours = {"calls": mine.calls, "holds": mine.holds}
        if turn == 0 and mine.holds:
            print(json.dumps({"yours": yours}), flush=True)
        results = [None] * world_size
        # Every rank now knows what all did, so that all come to one verdict.
        dist.all_gather_object(results, (yours, target))
        faulthandler.cancel_dump_traceback_later()  # an unfinished message stalls it
        if not any(did["holds"] for did, _ in results):
            print(f"[rank {rank}] not yet", flush=True)
            return {"solved": False}
        if wrong := [r for r, (did, due) in enumerate(results) if did != due]:
            raise AssertionError(f"ranks {wrong} differ from the target")
    print(f"[rank {rank}] as the target", flush=True)
    return {"solved": True}
