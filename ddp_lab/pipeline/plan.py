"""A schedule is a table: what each rank does, in order. Foresee its step, then run it.

    torchrun --standalone --nproc-per-node 2 ddp_lab/pipeline/plan.py

    [rank 0] 1f1b: 15 units foreseen, 2 micro-batches kept

Written by notebooks/19_pipelines.ipynb.
"""

import gc
import json
import os
import time
from contextlib import contextmanager
from itertools import accumulate, chain, zip_longest

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

STAGES_PER_RANK = 1
TIME = {"F": 1, "B": 2, "I": 1, "W": 1}  # of all stages of a rank, in units
KEPT = {"F": 1, "B": -1, "I": 0, "W": -1}  # micro-batches more than before

UNIT = 0.02  # seconds


def gpipe(rank, p, m):
    """All forwards, then all backwards."""
    return [(rank, what, i) for what in "FB" for i in range(m)]


def one_f_one_b(rank, p, m):
    """A forward for each later stage, then a forward and a backward in turn."""
    forwards, backwards = ([(rank, what, i) for i in range(m)] for what in "FB")
    return by_turns(forwards, backwards, ahead=p - 1 - rank)


def by_turns(forwards, backwards, ahead):
    pairs = zip_longest(forwards[ahead:], backwards)
    return [*forwards[:ahead], *filter(None, chain.from_iterable(pairs))]


def most_kept(row):
    """How many micro-batches a rank keeps at most: from F to B, or to W."""
    return max(accumulate(KEPT[what] for _, what, _ in row))


def units(action):
    """How long an action takes."""
    return TIME[action[1]] / STAGES_PER_RANK


def needs(action, stages):
    """What must be done before an action can begin."""
    stage, what, i = action
    if what == "F":
        return [(stage - 1, "F", i)] if stage > 0 else []
    if what == "W":
        return [(stage, "I", i)]
    # The gradient comes from the stage behind; the last stage has the loss itself.
    behind = [(stage + 1, "I", i)] if stage < stages - 1 else []
    return [(stage, "F", i), *behind]


def foresee(table, stages, cost=units):
    """When does each action begin and end, if messages take no time? By rank."""
    done, todo, bars = {}, [list(row) for row in table], [[] for _ in table]
    while any(todo):
        heads = [(row[0], r) for r, row in enumerate(todo) if row]
        free = [r for head, r in heads if all(n in done for n in needs(head, stages))]
        if not free:
            raise ValueError(f"none of these can begin: {[head for head, _ in heads]}")
        for r in free:
            stage, what, i = action = todo[r].pop(0)
            ends = [done[need] for need in needs(action, stages)]
            start = max([0, *ends, *(end for *_, end in bars[r][-1:])])
            done[action] = end = start + cost(action)
            if what == "B":  # that is I and W in one go
                done[stage, "I", i] = end
            bars[r].append([f"{stage}{what}{i}", start, end])
    return bars


def go_through(row, home):
    """Do what a row says, with naps for work and ones for data; return the diary."""
    diary, sends, one = [], [], torch.ones(1)
    for action in row:
        stage, what, i = action
        for need in needs(action, len(home)):
            if (src := home[need[0]]) != home[stage]:
                dist.recv(one, src, tag=tag(need))  # so it is done over there
        start = time.monotonic()  # on Linux, one clock for all processes of a machine
        time.sleep(UNIT * units(action))
        diary.append([f"{stage}{what}{i}", start, time.monotonic()])
        goes_to = stage + {"F": 1, "B": -1, "I": -1}.get(what, len(home))
        if 0 <= goes_to < len(home) and (dst := home[goes_to]) != home[stage]:
            sends.append(dist.isend(torch.ones(1), dst, tag=tag(action)))
    for work in sends:
        work.wait()
    return diary


def tag(action):  # as several messages are under way between two ranks
    return 1000 * action[0] + 2 * action[2] + (action[1] == "F")


SCHEDULES = {"gpipe": gpipe, "1f1b": one_f_one_b}


def main(rank, world_size, device):
    m, facts = 2 * world_size, {}
    home = [stage % world_size for stage in range(STAGES_PER_RANK * world_size)]
    for name, schedule in SCHEDULES.items():
        table = [schedule(r, world_size, m) for r in range(world_size)]
        bars, kept = foresee(table, len(home)), most_kept(table[rank])
        dist.barrier()
        diary = go_through(table[rank], home)
        end, took = bars[0][-1][2], (diary[-1][2] - diary[0][1]) / UNIT
        if rank == 0 and took < end:  # it begins before all others; no nap is too short
            raise AssertionError(f"{name}: {took} units, foreseen {end}")
        end = max(end for row in bars for *_, end in row)
        if end != 3 * (m + (world_size - 1) / STAGES_PER_RANK):
            raise AssertionError(f"{name}: {end} units are not the textbook's")
        told = f"{end:g} units foreseen, {kept} micro-batches kept"
        print(f"[rank {rank}] {name}: {told}", flush=True)
        facts[name] = {"units": end, "kept": kept, "bars": bars[rank], "diary": diary}
    return facts


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
