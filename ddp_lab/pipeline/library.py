"""The library's schedules are tables as well: read, foreseen, and run by hand.

    torchrun --standalone --nproc-per-node 2 ddp_lab/pipeline/library.py

    [rank 0] LoopedBFS: as uncut, ... units foreseen

Written by notebooks/19_pipelines.ipynb.
"""

import copy
import gc
import json
import os
import re
import time
from contextlib import contextmanager
from itertools import accumulate

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed import pipelining
from torch.distributed.elastic.multiprocessing.errors import record

STAGES_PER_RANK = 2
TIME = {"F": 1, "B": 2, "I": 1, "W": 1}  # of all stages of a rank, in units
KEPT = {"F": 1, "B": -1, "I": 0, "W": -1}  # micro-batches more than before

UNIT = 0.02  # seconds

WIDTH, ROWS = 16, 4  # numbers in a row, rows of a micro-batch


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


SCHEDULES = (
    "LoopedBFS",
    "Interleaved1F1B",
    "InterleavedZeroBubble",
    "ZBVZeroBubble",  # these two have the shape of a V
    "DualPipeV",
)


def table_of(schedule, p):
    """The library's table, as ours: [(stage, what, i), ...] by rank."""
    action = re.compile(r"(\d+)([FBIW])(\d+)")
    rows = [" ".join(map(str, schedule.pipeline_order[rank])) for rank in range(p)]
    return [[(int(s), what, int(i)) for s, what, i in action.findall(r)] for r in rows]


def train_step(name, net, home, batch, target, m):
    """One step by the library; check this rank's gradients, and return the schedule."""
    mine = [stage for stage, rank in enumerate(home) if rank == dist.get_rank()]
    parts = [copy.deepcopy(net[stage]) for stage in mine]
    stages = [
        pipelining.PipelineStage(part, stage, len(home), batch.device)
        for part, stage in zip(parts, mine, strict=True)
    ]
    schedule = getattr(pipelining, f"Schedule{name}")(stages, m, loss_fn=F.mse_loss)
    inputs, is_last = [batch] if 0 in mine else [], len(home) - 1 in mine
    schedule.step(*inputs, target=target if is_last else None)
    for part, stage in zip(parts, mine, strict=True):
        for p, e in zip(part.parameters(), net[stage].parameters(), strict=True):
            torch.testing.assert_close(p.grad, e.grad, msg="gradient differs")
    return schedule


def main(rank, world_size, device):
    # Ranks that share a GPU: gloo can send and receive only what is in host memory.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    m, around, facts = 2 * world_size, list(range(world_size)), {}
    torch.manual_seed(0)  # the same net and data on every rank
    linears = [nn.Linear(WIDTH, WIDTH) for _ in around + around]
    net = nn.Sequential(*(nn.Sequential(x, nn.Tanh()) for x in linears)).to(device)
    batch, target = torch.randn(2, m * ROWS, WIDTH).to(device)
    F.mse_loss(net(batch), target).backward()  # the reference: the uncut net
    for name in SCHEDULES:
        # The rank of each stage: around twice, or there and back in a V.
        home = around + (around[::-1] if "V" in name else around)
        schedule = train_step(name, net, home, batch, target, m)
        table = table_of(schedule, world_size)
        bars, kept = foresee(table, len(home)), most_kept(table[rank])
        end = max(end for row in bars for *_, end in row)
        print(f"[rank {rank}] {name}: as uncut, {end:g} units foreseen", flush=True)
        dist.barrier()
        diary = go_through(table[rank], home)
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
