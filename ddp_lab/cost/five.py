"""All-reduce in five ways, by messages alone, each held against the library's.

    torchrun --standalone --nproc-per-node 4 ddp_lab/cost/five.py

    [rank 0] ring: ... steps, sends ... of the tensor

Written by notebooks/12_what_communication_costs.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager
from functools import cache
from itertools import zip_longest
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

PART = 2**20  # numbers; a longer message goes in parts, and each is added on arrival
room_for = cache(torch.empty)  # kept, since memory is slow when it is first touched
NUMBERS = 5040  # divisible by every number of ranks up to 10


class Message(NamedTuple):
    source: int
    target: int
    first: int  # of the pieces that are sent,
    last: int  # and the one behind them
    adds: bool = True  # to what the target holds, or replaces that


def to_root(n):
    """The others send all to rank 0, one after another."""
    return [[Message(rank, 0, 0, 1)] for rank in range(1, n)]


def ring(n):
    """n pieces travel to the right, all at the same time; each rank adds its own."""
    return [
        [Message(r, (r + 1) % n, (r - s) % n, (r - s) % n + 1) for r in range(n)]
        for s in range(n - 1)
    ]


def whole(half):
    """A plan that sums, then the same messages backwards: each returns the sum."""
    back = [[Message(b, a, i, j, False) for a, b, i, j, _ in step] for step in half]
    return half + back[::-1]


def pieces(plan):
    return max((message.last for step in plan for message in step), default=1)


def tree(n):
    """Neighbors, then neighbors of those that are left, ..."""
    distances = [2**k for k in range((n - 1).bit_length())]
    pairs = [[(r, r - d) for r in range(d, n, 2 * d)] for d in distances]
    return [[Message(*pair, 0, 1) for pair in step] for step in pairs]


def halving(n):
    """Pairs swap halves: each rank keeps the sum of one, then of half of that, ..."""
    power = 2 ** (n.bit_length() - 1)  # as many ranks as can be halved to the end
    steps = [[Message(r, r - power, 0, power) for r in range(power, n)]]
    spans = [(0, power)] * power  # by rank, the pieces that it still adds up
    for distance in (2**k for k in range(power.bit_length() - 1)):
        steps.append([])
        for r, (first, last) in enumerate(spans):
            middle = (first + last) // 2
            halves = [(first, middle), (middle, last)]
            mine = bool(r & distance)
            steps[-1].append(Message(r, r ^ distance, *halves[not mine]))
            spans[r] = halves[mine]
    return [step for step in steps if step]


def two_level(n, size=None):
    """All ranks of a node to its first one; these leaders are a ring."""
    size = size or int(os.environ.get("LOCAL_WORLD_SIZE", n))
    size = 2 if size == n else size  # on one node, play nodes of two
    leaders = range(0, n, size)
    steps = [
        [Message(r, r // size * size, 0, len(leaders)) for r in range(i, n, size)]
        for i in range(1, size)
    ]
    for step in ring(len(leaders)):
        steps.append([Message(a * size, b * size, *what) for a, b, *what in step])
    return steps


def play(plan, buffer, look=lambda: None):
    """Send and receive this rank's messages; return how many bytes it has sent."""
    rank, n, sent = dist.get_rank(), pieces(plan), 0
    ends = [len(buffer) * i // n for i in range(n + 1)]  # of the pieces
    room = room_for(len(buffer), dtype=buffer.dtype, device=buffer.device)
    for step in plan:
        sends, receives, sums = [], [], []
        for source, target, first, last, adds in step:
            for begin in range(ends[first], ends[last], PART):
                span = slice(begin, min(begin + PART, ends[last]))
                if source == rank:
                    sends.append(dist.P2POp(dist.isend, buffer[span], target))
                    sent += buffer[span].nbytes
                if target == rank:
                    into = room[span] if adds else buffer[span]
                    receives.append(dist.P2POp(dist.irecv, into, source))
                    sums.append(span if adds else None)
        ops = receives + sends  # in no step does a rank send what it adds to
        for work, span in zip_longest(dist.batch_isend_irecv(ops) if ops else [], sums):
            if work:  # over NCCL, the first one stands for all
                work.wait()
            if span:
                buffer[span] += room[span]
        look()
    return sent


WAYS = (to_root, tree, ring, halving, two_level)


def watch(plan, rank, world_size, device):
    """Play the plan with numbers that tell whose they are; return them by step."""
    buffer = torch.full((pieces(plan),), 2**rank, device=device)
    holds = [buffer.tolist()]  # rank 0's number is 1, rank 1's 2, then 4, 8, ...
    play(plan, buffer, lambda: holds.append(buffer.tolist()))
    if holds[-1] != [2**world_size - 1] * len(buffer):
        raise AssertionError(f"not every rank's number is in it once: {holds}")
    return holds


def main(rank, world_size, device):
    # gloo's send and recv work on host memory only, even beside a GPU.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    dist.barrier()  # over NCCL, all ranks have to meet before pairs do
    facts = {}
    for way in WAYS:
        plan = whole(way(world_size))
        mine = torch.randn(NUMBERS, device=device, dtype=torch.float64)
        expected = mine.clone()
        dist.all_reduce(expected)  # every rank now holds what the library says
        sent = play(plan, mine)
        torch.testing.assert_close(mine, expected, msg=f"{way.__name__}: wrong sum")
        holds = watch(plan, rank, world_size, device)
        tensors = sent / mine.nbytes
        told = f"{len(plan)} steps, sends {tensors:.2f} of the tensor"
        print(f"[rank {rank}] {way.__name__}: {told}", flush=True)
        facts[way.__name__] = {"steps": len(plan), "sent": tensors, "holds": holds}
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
