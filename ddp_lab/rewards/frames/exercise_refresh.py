"""Exercise: weights from shards on the trainers to whole policies on the generators.

Once `refresh` is written, it is tried with each number of trainers that there can be,
and what every rank receives is counted. Until then:

    [rank 0] not yet
"""

import json
import random

import torch
import torch.distributed as dist
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode


def refresh(shards, policy, trainers, groups):
    raise NotImplementedError  # the cell's function stands here


class Received(TorchDispatchMode):
    """Counts the calls of this rank, and the bytes that they bring to it."""

    def __init__(self):
        super().__init__()
        self.calls, self.bytes = 0, 0

    def __torch_dispatch__(self, call, types, args=(), kwargs=None):
        name = call.name().split("::")[-1].strip("_")
        if "c10d" in call.namespace and not name.startswith(("wait", "barrier")):
            self.calls += 1
            self.bytes += arriving(name, args)
        return call(*args, **(kwargs or {}))


def arriving(name, args):
    """Return the bytes that other ranks bring to this one by a call."""
    if name == "send":
        return 0
    if name in ("recv", "recv_any_source"):
        return sum(tensor.nbytes for tensor in args[0])
    if name == "broadcast":
        is_source = dist.ProcessGroup.unbox(args[1]).rank() == args[2]
        return 0 if is_source else sum(tensor.nbytes for tensor in args[0])
    if name == "alltoall_base":  # none of them sends anything to itself
        return args[0].nbytes
    raise AssertionError(f"{name}: use broadcast, send and recv, or all_to_all_single")


def build(seed, device):
    """Weights whose rows cannot be cut equally, and one of a single row."""
    torch.manual_seed(seed)
    parts = nn.Embedding(7, 4), nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 1)
    return nn.Sequential(*parts).to(device)


def cut(weight, place, count):
    """Return the rows of a weight that one of `count` trainers holds; maybe none."""
    pieces = weight.detach().chunk(count)
    return (pieces[place] if place < len(pieces) else weight.detach()[:0]).clone()


def compare(policy, shards, trained, names, share):
    """Compare a generator's policy, or a trainer's rows, with what was trained."""
    if shards is not None:
        right = [cut(p, *share) for p in trained.parameters()]
        told = f"{names}: a trainer's rows have changed"
        torch.testing.assert_close(shards, right, msg=told)
        return
    pairs = zip(policy.named_parameters(), trained.parameters(), strict=True)
    for (name, weight), right in pairs:
        torch.testing.assert_close(weight, right, msg=f"{names}: {name} differs")


def attempt(rank, trainers, generators, seed, device):
    """Call, compare, count; return how many bytes came to this rank."""
    # Every rank makes every group: one trainer, and all generators.
    groups = [dist.new_group([trainer, *generators]) for trainer in trainers]
    trained, policy, shards = build(seed, device), None, None
    place = trainers.index(rank) if rank in trainers else None
    if rank in trainers:
        shards = [cut(p, place, len(trainers)) for p in trained.parameters()]
    else:
        policy = build(seed + 1, device)
    with Received() as received:
        refresh(shards, policy, trainers, groups)

    names = f"trainers {trainers}, generators {generators}"
    compare(policy, shards, trained, names, (place, len(trainers)))
    expected = sum(p.nbytes for p in trained.parameters()) if policy else 0
    told = f"{names}: received {received.bytes} bytes, expected {expected}"
    assert received.bytes == expected, told
    most = len(trainers) if policy else len(generators)
    assert received.calls <= most, f"{names}: {received.calls} calls, expected {most}"
    return received.bytes


def main(rank, world_size, device):
    # gloo's send and recv work on host memory only, even beside a GPU.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    drawn = [random.sample(range(world_size), world_size), random.randrange(1000)]
    dist.broadcast_object_list(drawn, src=0)  # all now hold what rank 0 has drawn
    ranks, seed = drawn
    try:
        counts = {
            f"{n} to {world_size - n}": attempt(
                rank, sorted(ranks[:n]), sorted(ranks[n:]), seed, device
            )
            for n in range(1, world_size)
        }
    except NotImplementedError:
        print(f"[rank {rank}] not yet", flush=True)
        print(json.dumps({"solved": False}), flush=True)
        dist.barrier()  # to leave now would cut off those that are still joining
        return None
    print(f"[rank {rank}] bytes received, trainers to generators: {counts}", flush=True)
    return {"solved": True, "counts": counts}
