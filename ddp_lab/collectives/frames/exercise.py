"""Exercise: build all_reduce out of reduce_scatter and all_gather.

Once `all_reduce_by_hand` is written, four ranks print:

    [rank 0] length 7: [6, 10, 14, 18, 22, 26, 30], received 2 + 8 numbers
"""

import secrets

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# How PyTorch's own names of the two begin, whatever underscores are in them.
ALLOWED = ("reducescatter", "allgather")


def all_reduce_by_hand(tensor, rank, world_size):
    return None  # the cell's function stands here


class TwoCollectives(TorchDispatchMode):
    """Refuse all others, and note how many numbers each call of these two delivers."""

    def __init__(self):
        super().__init__()
        self.received = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        library, name, _ = str(function).split(".")
        counts = "c10d" in library and not name.startswith(("wait", "_wrap"))
        if counts and not name.replace("_", "").startswith(ALLOWED):
            raise AssertionError(f"{name} was called, no reduce_scatter or all_gather")
        result = function(*args, **(kwargs or {}))
        if counts:
            tensors = filter(torch.is_tensor, tree_leaves(result))
            self.received.append(sum(out.numel() for out in tensors))
        return result


def tensors_of(rank, device):
    """12 is a multiple of 2, 3 and 4, the rest need padding; nobody knows the last.

    Its numbers are too large for float32.
    """
    for length in (12, 7, 1):
        yield torch.arange(rank, rank + length, device=device)  # (length,)
    drawn = [2**40 + secrets.randbelow(1000) for _ in range(10)]
    yield torch.tensor(drawn, device=device)


def main(rank, world_size, device):
    # Host memory for gloo: which of these it does on a GPU depends on the release.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    facts = {"solved": False}
    for tensor in tensors_of(rank, device):
        length, before, expected = len(tensor), tensor.clone(), tensor.clone()
        # Every rank ends up with the sum of all tensors: the built-in is the truth.
        dist.all_reduce(expected, op=dist.ReduceOp.SUM)
        with TwoCollectives() as calls:
            got = all_reduce_by_hand(tensor, rank, world_size)
        if got is None:
            print(f"[rank {rank}] not yet", flush=True)
            break
        if not torch.equal(got, expected) or got.dtype != expected.dtype:
            sums = f"{got.tolist()} of {got.dtype}, expected {expected.tolist()}"
            raise AssertionError(f"length {length}: {sums}")
        if not torch.equal(tensor, before):
            raise AssertionError(f"length {length}: the tensor was changed")
        most = (length // world_size + 1) * world_size  # with what was added
        if len(calls.received) != 2 or sum(calls.received) > most // world_size + most:
            told = f"{calls.received}; {most // world_size} and {most} are enough"
            raise AssertionError(f"length {length}: received {told}")
        if length == 7:
            count = f"received {calls.received[0]} + {calls.received[1]} numbers"
            print(f"[rank {rank}] length 7: {got.tolist()}, {count}", flush=True)
            facts["length_7"] = got.tolist()
    else:
        facts["solved"] = True
    return facts
