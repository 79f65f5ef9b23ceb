"""Exercise: a sum in two levels, inside each node and then among the nodes' leaders.

    torchrun --standalone --nproc-per-node 4 ddp_lab/collectives/exercise_groups.py

Once `sum_in_two_levels` is written, four ranks print:

    [rank 0] brought 1, knows the sum 1111
    [rank 1] brought 10, knows the sum 1111

Written by notebooks/02_collectives.ipynb.
"""

import faulthandler
import gc
import inspect
import json
import os
import secrets
from contextlib import contextmanager
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

PATIENCE = 15  # seconds
# How the names of collectives begin.
COLLECTIVE = {"all", "barrier", "broadcast", "gather", "monitored", "reduce", "scatter"}


def sum_in_two_levels(tensor, nodes, rank):
    """Return the sum of `tensor` over all ranks, on every rank, as a tensor.

    tensor: (1,), which holds 10 ** rank at first: so the sum shows who was counted.
    nodes: [[0, 1], [2, 3]] with four ranks, [[0, 1], [2]] with three. The first rank of
        a node is its leader.

    A collective must stay inside one node, or be among the leaders. dist.new_group
    makes the groups; then dist.reduce, all_reduce and broadcast with group=... will do.
    """
    return None  # your code here


@contextmanager
def two_levels_only(nodes):
    """Refuse every collective that goes across nodes, if not among the leaders."""
    leaders = {node[0] for node in nodes}

    def guard(name):
        call = getattr(dist, name)

        def guarded(*args, **kwargs):
            group = inspect.signature(call).bind(*args, **kwargs).arguments.get("group")
            members = set(dist.get_process_group_ranks(group))
            if not any(members <= set(ranks) for ranks in (*nodes, leaders)):
                raise AssertionError(f"{name} among ranks {sorted(members)}")
            return call(*args, **kwargs)

        return guarded

    names = [name for name in dir(dist) if name.split("_")[0] in COLLECTIVE]
    names.remove("reduce_op")  # old, and no collective
    with mock.patch.multiple(dist, **{name: guard(name) for name in names}):
        yield


def main(rank, world_size, device):
    # If a group or a call never comes about, each rank shows where it waits.
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    # Host memory for gloo: which of these it does on a GPU depends on the release.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    ranks, facts = list(range(world_size)), {}
    nodes = [ranks[first : first + 2] for first in range(0, world_size, 2)]
    for brought in (10**rank, secrets.randbelow(1000)):
        tensor = torch.tensor([brought], device=device)  # (1,)
        with two_levels_only(nodes):
            total = sum_in_two_levels(tensor, nodes, rank)
        answers = [None] * world_size
        # Every rank ends with what all brought and found: they come to one verdict.
        answer = brought, None if total is None else int(total)
        dist.all_gather_object(answers, answer)
        numbers, sums = (list(column) for column in zip(*answers, strict=True))
        if sums == [None] * world_size:
            print(f"[rank {rank}] not yet", flush=True)
            return {"solved": False}
        if sums != [sum(numbers)] * world_size:
            raise AssertionError(f"the ranks hold {sums}, expected {sum(numbers)}")
        if not facts:
            known = f"brought {brought}, knows the sum {sums[rank]}"
            print(f"[rank {rank}] {known}", flush=True)
            facts = {"solved": True, "sum": sums[rank]}
    return facts


# --- the same in every program: join the group, run main, leave whatever happens ---


@contextmanager
def process_group():
    """A GPU per rank over NCCL; else gloo, on a shared GPU or the CPU."""
    device, backend = torch.device("cpu"), "gloo"
    if count := torch.cuda.device_count():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % count)
        torch.cuda.set_device(device)
        if count >= int(os.environ["LOCAL_WORLD_SIZE"]):
            backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, device_id=device if "nccl" in backend else None)
    try:
        yield dist.get_rank(), dist.get_world_size(), device
    finally:
        dist.destroy_process_group()
        gc.collect()  # a leftover gloo object could abort the process at exit


@record
def run():
    with process_group() as (rank, world_size, device):
        if facts := main(rank, world_size, device):
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    run()
