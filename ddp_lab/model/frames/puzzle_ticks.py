"""Puzzle: what each stage of a pipeline does, tick by tick, under GPipe.

Until `ticks` is written, each rank prints:

    [rank 0] not yet
"""

import json

import torch.distributed as dist

MICRO = 3, 1, 2, 5  # micro-batches: the first number is shown
STAGES = 1, 2, 3, 6  # of pipelines that each rank lists as a whole


def ticks(rank, stages, m):
    return None  # the cell's function stands here


def goal(rank, stages, m):
    """What this stage does in each tick; forward and backward take one each."""
    row = ["idle"] * (2 * (m + stages - 1))
    for i in range(m):
        row[rank + i] = f"F{i}"  # one tick after the stage to the left
        row[-1 - rank - i] = f"B{i}"  # the last one forward is the first one back
    return row


def trace(row):
    shown = ["" if does == "idle" else str(does) for does in row]
    return {"calls": [["tick", None, does] for does in shown], "holds": None}


def main(rank, world_size, device):
    for m in MICRO:
        target = goal(rank, world_size, m)
        if m == MICRO[0]:
            print(json.dumps({"target": trace(target)}), flush=True)
        row = ticks(rank, world_size, m)
        got = None if row is None else list(row)
        everyone = [None] * world_size
        # Every rank now knows what all did, so that all come to one verdict.
        dist.all_gather_object(everyone, got == target)
        if got is None and not any(everyone):
            print(f"[rank {rank}] not yet", flush=True)
            return {"solved": False}
        if m == MICRO[0]:
            print(json.dumps({"yours": trace(got or [])}), flush=True)
        if wrong := [r for r in range(world_size) if not everyone[r]]:
            raise AssertionError(f"ranks {wrong} differ from the target, m = {m}")
    for stages in STAGES:
        rows = [list(ticks(stage, stages, 4)) for stage in range(stages)]
        if rows != [goal(stage, stages, 4) for stage in range(stages)]:
            raise AssertionError(f"with {stages} stages they differ from the target")
    print(f"[rank {rank}] as the target", flush=True)
    return {"solved": True}
