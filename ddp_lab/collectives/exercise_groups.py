"""Exercise: a sum in two levels, inside each node and then among the nodes' leaders.

    torchrun --standalone --nproc-per-node 4 ddp_lab/collectives/exercise_groups.py

Once `sum_in_two_levels` is written, four ranks print:

    [rank 0] brought 1, knows the sum 1111
    [rank 1] brought 10, knows the sum 1111

Written by notebooks/02_collectives.ipynb.
"""

import faulthandler
import gc
import json
import os
import secrets
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import _resolve_process_group
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils._python_dispatch import TorchDispatchMode

PATIENCE = 15  # seconds


def sum_in_two_levels(tensor, nodes, rank):
    """Return the sum of `tensor` over all ranks, on every rank, as a tensor.

    tensor: (2,): 10 ** rank, so that the sum shows who was counted, and a random one.
    nodes: [[0, 1], [2, 3]] with four ranks, [[0, 1], [2]] with three. The first rank of
        a node is its leader.

    A collective must stay inside one node, or be among the leaders. dist.new_group
    makes the groups; then dist.reduce, all_reduce and broadcast with group=... will do.
    """
    return None  # your code here


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


def check_names(groups):
    """What one rank calls group 1 is group 1 for all, or the sum was right by luck."""
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
    dist.all_gather_object(answers, (tensor.tolist(), found, calls.groups))
    faulthandler.cancel_dump_traceback_later()  # leaving may take its time
    brought, sums, groups = zip(*answers, strict=True)
    if sums == (None,) * world_size:
        print(f"[rank {rank}] not yet", flush=True)
        return {"solved": False}
    expected = [sum(numbers) for numbers in zip(*brought, strict=True)]
    if sums != (expected,) * world_size:
        raise AssertionError(f"the ranks hold {sums}, expected {expected}")
    check_names(groups)
    known = f"brought {10**rank}, knows the sum {sums[rank][0]}"
    print(f"[rank {rank}] {known}", flush=True)
    return {"solved": True, "sum": sums[rank][0]}


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
