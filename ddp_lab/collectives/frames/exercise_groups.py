"""Exercise: a sum in two levels, inside each node and then among the nodes' leaders.

Once `sum_in_two_levels` is written, four ranks print:

    [rank 0] brought 1, knows the sum 1111
    [rank 1] brought 10, knows the sum 1111
"""

import faulthandler
import secrets

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group, _world
from torch.utils._python_dispatch import TorchDispatchMode

PATIENCE = 15  # seconds


def sum_in_two_levels(tensor, nodes, rank):
    return None  # the cell's function stands here


class TwoLevels(TorchDispatchMode):
    """Refuse each call that goes across nodes, if not among their leaders."""

    def __init__(self, nodes):
        super().__init__()
        self.allowed = [*map(set, nodes), {node[0] for node in nodes}]
        self.groups = {}  # members by the group's name

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        library, name, _ = str(function).split(".")
        if "c10d" in library and not name.startswith(("wait", "_wrap")):
            if name in ("send", "recv_", "recv_any_source_"):
                raise AssertionError(f"{name}: a collective in a group will do")
            names = [argument.name for argument in function._schema.arguments]
            if "functional" in library:
                group = _resolve_process_group(args[names.index("group_name")])
            else:
                group = dist.ProcessGroup.unbox(args[names.index("process_group")])
            members = sorted(dist.get_process_group_ranks(group))
            if not any(allowed >= set(members) for allowed in self.allowed):
                raise AssertionError(f"{name} among ranks {members}")
            self.groups[group.group_name] = members
        return function(*args, **(kwargs or {}))


def check_names(groups, made):
    """What one rank calls group 1 is group 1 for all, or the sum was right by luck."""
    numbered = all(name.isdigit() for by_rank in groups for name in by_rank)
    if numbered and len({*made}) > 1:  # and not made by the members alone
        told = f"groups that each rank has made: {[count - 1 for count in made]}"
        raise AssertionError(f"{told}; every rank has to make every group")
    for name in sorted({name for by_rank in groups for name in by_rank}):
        found = {str(by_rank[name]) for by_rank in groups if name in by_rank}
        if len(found) > 1:
            told = f"group {name} is {' and '.join(sorted(found))}"
            raise AssertionError(f"{told}: has every rank made every group?")


def main(rank, world_size, device):
    # If a group or a call never comes about, each rank shows where it waits.
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    # Host memory for gloo: which of these it does on a GPU depends on the release.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    ranks = list(range(world_size))
    nodes = [ranks[first : first + 2] for first in range(0, world_size, 2)]
    tensor = torch.tensor([10**rank, secrets.randbelow(1000)], device=device)  # (2,)
    with TwoLevels(nodes) as calls:
        total = sum_in_two_levels(tensor.clone(), nodes, rank)
    answers = [None] * world_size
    # Every rank ends with what all brought and found, so all come to one verdict.
    found = None if total is None else torch.as_tensor(total).tolist()
    made = _world.group_count
    dist.all_gather_object(answers, (tensor.tolist(), found, calls.groups, made))
    faulthandler.cancel_dump_traceback_later()  # leaving may take its time
    brought, sums, groups, made = zip(*answers, strict=True)
    if sums == (None,) * world_size:
        print(f"[rank {rank}] not yet", flush=True)
        return {"solved": False}
    expected = [sum(numbers) for numbers in zip(*brought, strict=True)]
    if sums != (expected,) * world_size:
        raise AssertionError(f"the ranks hold {sums}, expected {expected}")
    check_names(groups, made)
    known = f"brought {10**rank}, knows the sum {sums[rank][0]}"
    print(f"[rank {rank}] {known}", flush=True)
    return {"solved": True, "sum": sums[rank][0]}
