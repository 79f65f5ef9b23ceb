"""Exercise: an all-reduce in as few steps as there can be, for a power of two ranks.

    torchrun --standalone --nproc-per-node 4 ddp_lab/cost/exercise.py

Until `quick` is written, each rank prints:

    [rank 0] not yet

Written by notebooks/12_what_communication_costs.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


class Message(NamedTuple):
    source: int
    target: int
    first: int
    last: int
    adds: bool = True


def quick(n):
    """Return all steps of an all-reduce over n ranks, n a power of two.

    A step is a list of Message(source, target, first, last, adds), as in the lesson;
    in a step each rank may send one message and receive one. Every rank must end with
    every rank's number once. Target: log2(n) steps.
    """
    return None  # your code here


def pieces(plan):
    return max((message.last for step in plan for message in step), default=1)


def play_alone(plan, n):
    """What each of n ranks holds in the end, without processes; rank r brings 2**r."""
    holds = [[2**rank] * pieces(plan) for rank in range(n)]
    for number, step in enumerate(plan, 1):
        for what, ranks in (("send", 0), ("receive", 1)):
            busy = [message[ranks] for message in step]
            if len(set(busy)) < len(busy):
                raise AssertionError(f"step {number}: a rank can {what} once in a step")
        before = [list(of_rank) for of_rank in holds]
        for source, target, first, last, adds in step:
            if source == target or not {source, target} <= set(range(n)):
                raise AssertionError(f"step {number}: no message {source} to {target}")
            if not 0 <= first < last:
                raise AssertionError(f"step {number}: no pieces {first} to {last}")
            for i in range(first, last):
                holds[target][i] = before[source][i] + adds * before[target][i]
    return holds


def judge(plan, n):
    """Stop unless the plan sums on every rank, in log2(n) steps."""
    plan = [[Message(*message) for message in step] for step in plan]
    holds = play_alone(plan, n)
    if holds != [[2**n - 1] * pieces(plan)] * n:
        raise AssertionError(f"{n} ranks: not each rank's number once, but {holds}")
    if len(plan) > (expected := n.bit_length() - 1):
        raise AssertionError(f"{n} ranks: {len(plan)} steps, expected {expected}")
    return plan


def play(plan, buffer, rank):
    """Send and receive this rank's messages, as in the lesson."""
    ends = [len(buffer) * i // pieces(plan) for i in range(pieces(plan) + 1)]
    room, sent = torch.empty_like(buffer), 0
    for step in plan:
        posts, sums = [], []
        for source, target, first, last, adds in step:
            span = slice(ends[first], ends[last])
            if source == rank:
                posts.append(dist.P2POp(dist.isend, buffer[span], target))
                sent += buffer[span].nbytes
            if target == rank:
                posts.append(dist.P2POp(dist.irecv, room[span], source))
                sums.append((span, adds))
        for work in dist.batch_isend_irecv(posts) if posts else []:
            work.wait()
        for span, adds in sums:
            buffer[span] = room[span] + adds * buffer[span]
    return sent / buffer.nbytes


def main(rank, world_size, device):
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    dist.barrier()  # over NCCL, all ranks have to meet before pairs do
    if quick(2) is None:  # on all ranks alike
        print(f"[rank {rank}] not yet", flush=True)
        print(json.dumps({"solved": False}), flush=True)
        dist.barrier()  # to leave now would cut off those still joining
        return
    for n in (2, 4, 8, 16, 32):
        judge(quick(n), n)
    steps, sent = len(quick(16)), 0
    if world_size & (world_size - 1) == 0:  # other numbers of ranks are only played
        mine = torch.randn(5040, dtype=torch.float64, device=device)
        expected = mine.clone()
        dist.all_reduce(expected)  # every rank now holds what the library says
        sent = play(judge(quick(world_size), world_size), mine, rank)
        torch.testing.assert_close(mine, expected, msg="not the library's sum")
    told = f"right; sends {sent:.2f} of the tensor; {steps} steps with 16 ranks"
    print(f"[rank {rank}] {told}", flush=True)
    return {"solved": True, "steps": steps, "sent": sent}


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
