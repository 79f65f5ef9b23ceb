"""Exercise: a sum over all nodes in which every rank carries its share over the wire.

On one node, four ranks play two nodes of two. Once `sum_by_shares` is written:

    [rank 0] has the sum, and brought 1/2 of the tensor to the wire
"""

import json
import os

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

NUMBERS = 2520  # divisible by every number of ranks up to 10
SIZE = 4 * NUMBERS  # of the tensor, in bytes


def sum_by_shares(tensor, inside, across):
    return None  # the cell's function stands here


def make_groups(rank, world_size):
    """The ranks of my node, and those with my local rank, as groups."""
    size = int(os.environ["LOCAL_WORLD_SIZE"])
    if size == world_size and size % 2 == 0 and size > 2:
        size //= 2  # play two nodes
    if world_size % size or NUMBERS % size:
        raise SystemExit(f"{world_size} ranks are no equal nodes with {size} of them")
    ranks = torch.arange(world_size).view(-1, size)  # (nodes, ranks of a node)
    inside = [dist.new_group(node.tolist()) for node in ranks]
    across = [dist.new_group(column.tolist()) for column in ranks.T]
    return inside[rank // size], across[rank % size], size


class Wire(TorchDispatchMode):
    """Counts the bytes that this rank brings to `across`, by whichever call."""

    def __init__(self, inside, across):
        super().__init__()
        self.across, self.brought = across.group_name, 0
        self.allowed = {self.across, inside.group_name}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = str(function)
        silent = any(word in name for word in ("barrier", "wait", "wrap"))
        if "c10d" in function.namespace and not silent:
            if (group := name_of_group(args)) not in self.allowed:
                raise AssertionError("only the groups `inside` and `across`, please")
            if group == self.across and "recv" not in name:
                tensors = [a for a in tree_leaves(args) if isinstance(a, torch.Tensor)]
                self.brought += min(tensor.nbytes for tensor in tensors)
        return function(*args, **(kwargs or {}))


def name_of_group(args):
    if isinstance(args[-1], str):  # of functional collectives
        return args[-1]
    for arg in args:
        if isinstance(arg, torch.ScriptObject) and "ProcessGroup" in arg._type().name():
            return dist.ProcessGroup.unbox(arg).group_name


def main(rank, world_size, device):
    # gloo knows some of these calls for host memory only, even beside a GPU.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    inside, across, size = make_groups(rank, world_size)
    tensor = torch.randn(NUMBERS, device=device)  # another one on each rank
    expected = tensor.clone()
    dist.all_reduce(expected)  # every rank now holds the truth
    with Wire(inside, across) as wire:
        done = sum_by_shares(tensor, inside, across)
    if done is None:  # on all ranks alike, so nobody is left waiting
        print(f"[rank {rank}] not yet", flush=True)
        print(json.dumps({"solved": False}), flush=True)
        dist.barrier()  # to leave now would cut off those still joining
        return
    right = torch.allclose(tensor, expected, atol=1e-5)
    a_share = wire.brought * size == SIZE
    what = f"brought {wire.brought}/{SIZE} of the tensor to the wire"
    if a_share:
        what = f"brought 1/{size} of the tensor to the wire"
    says = f"{'has' if right else 'does not have'} the sum, and {what}"
    print(f"[rank {rank}] {says}", flush=True)
    verdicts = [None] * world_size
    dist.all_gather_object(verdicts, (right, a_share))
    if not all(all(verdict) for verdict in verdicts):
        raise AssertionError(f"{says}; expected 1/{size}")
    return {"solved": True, "share": wire.brought / SIZE}
