"""Exercise: a schedule with a third of 1F1B's idle time, in rank 0's memory.

    torchrun --standalone --nproc-per-node 2 ddp_lab/pipeline/exercise.py

Fill in row(), and the ranks foresee the step, then go through it. Until then:

    [rank 0] not yet

Written by notebooks/19_pipelines.ipynb.
"""

import gc
import json
import os
import random
import time
from contextlib import contextmanager
from itertools import accumulate

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

UNIT = 0.02  # seconds, of one F, one I or one W
KEPT = {"F": 1, "I": 0, "W": -1}  # micro-batches more than before


def row(rank, p, m):
    """Return what `rank` does, as [("F", 0), ...]: F, I and W of m micro-batches.

    Stage r lies on rank r of p, and F, I and W take a unit each. The step must be done
    in 3 m + p - 1 units, and no rank may keep more than p micro-batches, counted from
    F to W. Any p and any m >= p must do.
    """
    return None  # your code here


def needs(action, p):
    """What must be done before an action can begin."""
    stage, what, i = action
    if what == "F":
        return [(stage - 1, "F", i)] if stage > 0 else []
    if what == "W":
        return [(stage, "I", i)]
    behind = [(stage + 1, "I", i)] if stage < p - 1 else []
    return [(stage, "F", i), *behind]


def foresee(table):
    """When is the last action done, if each takes a unit and messages no time?"""
    p, done, todo = len(table), {}, [list(row) for row in table]
    ends = [0] * p
    while any(todo):
        heads = [(row[0], r) for r, row in enumerate(todo) if row]
        free = [r for head, r in heads if all(need in done for need in needs(head, p))]
        if not free:
            raise ValueError(f"none of these can begin: {[head for head, _ in heads]}")
        for r in free:
            action = todo[r].pop(0)
            ends[r] = max([ends[r], *(done[need] for need in needs(action, p))]) + 1
            done[action] = ends[r]
    return max(ends)


def judge(p, m):
    """Return the table of row(); raise if it lacks something or is not good enough."""
    table = [[(r, what, i) for what, i in row(r, p, m)] for r in range(p)]
    for r, actions in enumerate(table):
        wanted = {(r, what, i) for what in "FIW" for i in range(m)}
        if len(actions) != 3 * m or set(actions) != wanted:
            raise AssertionError(f"p = {p}, m = {m}: rank {r} needs each F, I, W once")
        kept = max(accumulate(KEPT[what] for _, what, _ in actions))
        if kept > p:
            raise AssertionError(f"p = {p}, m = {m}: rank {r} keeps {kept}, not {p}")
    units, target = foresee(table), 3 * m + p - 1
    if units > target:
        raise AssertionError(f"p = {p}, m = {m}: {units} units, expected {target}")
    return table, units


def go_through(actions):
    """Do what a row says, with naps for work; return how many units that took."""
    p, sends, one, start = dist.get_world_size(), [], torch.ones(1), time.monotonic()
    for action in actions:
        stage, what, i = action
        tag = 2 * i + (what == "F")  # forward and back, several are under way
        for src, *_ in needs(action, p):
            if src != stage:
                dist.recv(one, src, tag=tag)  # so it is done over there
        time.sleep(UNIT)
        goes_to = stage + {"F": 1, "I": -1, "W": p}[what]  # W goes nowhere
        if 0 <= goes_to < p:
            sends.append(dist.isend(torch.ones(1), goes_to, tag=tag))
    for work in sends:
        work.wait()
    return (time.monotonic() - start) / UNIT


def main(rank, world_size, device):
    m = 2 * world_size
    if row(rank, world_size, m) is None:
        print(f"[rank {rank}] not yet", flush=True)
        dist.barrier()  # to leave now would cut off those that are still joining
        return {"solved": False}
    for p in range(2, 10):  # other pipelines, drawn anew in each run
        judge(p, p)
        judge(p, random.randrange(p, 4 * p))
    table, units = judge(world_size, m)
    dist.barrier()
    took = go_through(table[rank])
    told = f"{units} units foreseen, at most {world_size} micro-batches kept"
    print(f"[rank {rank}] {told}", flush=True)
    return {"solved": True, "units": units, "took": took}


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
