"""Exercise: a sum in two levels, inside each node and then among the nodes' leaders.

Once `sum_in_two_levels` is written, four ranks print:

    [rank 0] brought 1, knows the sum 1111
    [rank 1] brought 10, knows the sum 1111
"""

import faulthandler
import inspect
import secrets
from contextlib import contextmanager
from unittest import mock

import torch
import torch.distributed as dist

PATIENCE = 15  # seconds
# How the names of collectives begin.
COLLECTIVE = {"all", "barrier", "broadcast", "gather", "monitored", "reduce", "scatter"}


def sum_in_two_levels(tensor, nodes, rank):
    return None  # the cell's function stands here


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
