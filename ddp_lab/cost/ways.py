"""All-reduce in three ways, by messages alone: steps, bytes and time of each.

    torchrun --standalone --nproc-per-node 4 ddp_lab/cost/ways.py

    [rank 0] ring: ... steps, sends ... of the tensor

Written by notebooks/12_what_communication_costs.ipynb.
"""

import gc
import json
import os
import time
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

NUMBERS = 5040  # divisible by every number of ranks up to 10
SIZES, ROUNDS = (2**10, 2**19), 5  # bytes of the timed sums; how often each


class Message(NamedTuple):
    source: int
    target: int
    first: int  # of the pieces that are sent,
    last: int  # and the one behind them
    adds: bool = True  # to what the target holds, or replaces that


def whole(half):
    """A plan that sums, then the same messages backwards: each returns the sum."""
    back = [[Message(b, a, i, j, False) for a, b, i, j, _ in step] for step in half]
    return half + back[::-1]


def to_root(n):
    """The others send all to rank 0, one after another."""
    return [[Message(rank, 0, 0, 1)] for rank in range(1, n)]


def tree(n):
    """Neighbors, then neighbors of those that are left, ..."""
    distances = [2**k for k in range((n - 1).bit_length())]
    pairs = [[(r, r - d) for r in range(d, n, 2 * d)] for d in distances]
    return [[Message(*pair, 0, 1) for pair in step] for step in pairs]


def ring(n):
    """n pieces travel to the right, all at the same time; each rank adds its own."""
    return [
        [Message(r, (r + 1) % n, (r - s) % n, (r - s) % n + 1) for r in range(n)]
        for s in range(n - 1)
    ]


def pieces(plan):
    return max((message.last for step in plan for message in step), default=1)


def play(plan, buffer, look=lambda: None):
    """Send and receive this rank's messages; return how many bytes it has sent."""
    rank, n, sent = dist.get_rank(), pieces(plan), 0
    ends = [len(buffer) * i // n for i in range(n + 1)]  # of the pieces
    room = torch.empty_like(buffer)
    for step in plan:
        posts, sums = [], []
        for source, target, first, last, adds in step:
            span = slice(ends[first], ends[last])
            if source == rank:
                posts.append(dist.P2POp(dist.isend, buffer[span], target))
                sent += buffer[span].nbytes
            if target == rank:
                into = room[span] if adds else buffer[span]
                posts.append(dist.P2POp(dist.irecv, into, source))
                sums += [span] if adds else []
        # All of a step at once, so that two ranks that swap do not wait for each other.
        for work in dist.batch_isend_irecv(posts) if posts else []:
            work.wait()
        for span in sums:
            buffer[span] += room[span]
        look()
    return sent


WAYS = (to_root, tree, ring)


def watch(plan, rank, world_size, device):
    """Play the plan with numbers that tell whose they are; return them by step."""
    buffer = torch.full((pieces(plan),), 2**rank, device=device)
    holds = [buffer.tolist()]  # rank 0's number is 1, rank 1's 2, then 4, 8, ...
    play(plan, buffer, lambda: holds.append(buffer.tolist()))
    if holds[-1] != [2**world_size - 1] * len(buffer):
        raise AssertionError(f"not every rank's number is in it once: {holds}")
    return holds


def timed(call, size, device):
    """The median seconds of a call, each as long as on its slowest rank."""
    seconds = []
    for _ in range(ROUNDS + 1):
        buffer = torch.ones(size // 4, device=device)
        dist.barrier()  # all ranks begin together
        start = time.perf_counter()
        call(buffer)
        buffer[-1].item()  # on a GPU, only this waits for the call
        seconds.append(time.perf_counter() - start)
    taken = torch.tensor(seconds[1:], device=device)  # the first one connects the ranks
    dist.all_reduce(taken, dist.ReduceOp.MAX)
    return taken.median().item()


def main(rank, world_size, device):
    # gloo's send and recv work on host memory only, even beside a GPU.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    dist.barrier()  # over NCCL, all ranks have to meet before pairs do
    facts = {"library": {"seconds": [timed(dist.all_reduce, s, device) for s in SIZES]}}
    for way in WAYS:
        plan = whole(way(world_size))
        mine = torch.randn(NUMBERS, device=device, dtype=torch.float64)
        expected = mine.clone()
        dist.all_reduce(expected)  # every rank now holds what the library says
        tensors = play(plan, mine) / mine.nbytes
        torch.testing.assert_close(mine, expected, msg=f"{way.__name__}: wrong sum")
        told = f"{len(plan)} steps, sends {tensors:.2f} of the tensor"
        print(f"[rank {rank}] {way.__name__}: {told}", flush=True)
        facts[way.__name__] = {"steps": len(plan), "sent": tensors}
        facts[way.__name__]["holds"] = watch(plan, rank, world_size, device)
        facts[way.__name__]["seconds"] = [
            timed(lambda buffer, plan=plan: play(plan, buffer), size, device)
            for size in SIZES
        ]
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
