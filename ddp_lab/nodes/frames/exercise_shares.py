"""Exercise: a sum over all nodes in which every rank carries its share over the wire.

On one node, four ranks play two nodes of two. Once `sum_by_shares` is written:

    [rank 0] has the sum, and brought 1/2 of the tensor to the wire
"""

import json
import os
from unittest import mock

import torch
import torch.distributed as dist

NUMBERS = 2520  # divisible by every number of ranks up to 10
ALLOWED = """all_reduce reduce broadcast reduce_scatter_tensor reduce_scatter
all_gather_into_tensor all_gather""".split()


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


def counted(call, inside, across, brought):
    """The same collective; note how many numbers this rank brings to the wire."""

    def counting(*args, **options):
        group = options.get(
            "group", next((a for a in args if a in (inside, across)), 0)
        )
        if group not in (inside, across):
            raise AssertionError("which group? Only `inside` and `across` are allowed")
        tensors = [a for a in args if isinstance(a, torch.Tensor)] + [
            tensor for a in args if isinstance(a, list) for tensor in a
        ]
        if group is across:
            brought.append(min(tensor.numel() for tensor in tensors))
        return call(*args, **options)

    return counting


def main(rank, world_size, device):
    # gloo knows some of these calls for host memory only, even beside a GPU.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    inside, across, size = make_groups(rank, world_size)
    tensor = torch.randn(NUMBERS, device=device)  # another one on each rank
    expected, brought = tensor.clone(), []
    dist.all_reduce(expected)  # every rank now holds the truth
    calls = {
        name: counted(getattr(dist, name), inside, across, brought) for name in ALLOWED
    }
    with mock.patch.multiple(dist, **calls):
        done = sum_by_shares(tensor, inside, across)
    if done is None:  # on all ranks alike, so nobody is left waiting
        print(f"[rank {rank}] not yet", flush=True)
        print(json.dumps({"solved": False}), flush=True)
        dist.barrier()  # to leave now would cut off those still joining
        return
    right = torch.allclose(tensor, expected, atol=1e-5)
    what = f"brought {sum(brought)}/{NUMBERS} of the tensor to the wire"
    if sum(brought) * size == NUMBERS:
        what = f"brought 1/{size} of the tensor to the wire"
    says = f"{'has' if right else 'does not have'} the sum, and {what}"
    print(f"[rank {rank}] {says}", flush=True)
    verdicts = [None] * world_size
    dist.all_gather_object(verdicts, (right, sum(brought) * size == NUMBERS))
    if not all(all(verdict) for verdict in verdicts):
        raise AssertionError(f"{says}; expected 1/{size}")
    return {"solved": True, "share": sum(brought) / NUMBERS}
