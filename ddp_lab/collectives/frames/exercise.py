"""Exercise: build all_reduce out of reduce_scatter and all_gather.

Once `all_reduce_by_hand` is written, four ranks print:

    [rank 0] length 7: [6, 10, 14, 18, 22, 26, 30], received 2 + 8 numbers
"""

import inspect
import secrets
from contextlib import contextmanager
from unittest import mock

import torch
import torch.distributed as dist

# How the names of collectives begin, and of those that may be called.
COLLECTIVE = {"all", "broadcast", "gather", "reduce", "scatter"}
ALLOWED = ("reduce_scatter", "all_gather")


def all_reduce_by_hand(tensor, rank, world_size):
    return None  # the cell's function stands here


@contextmanager
def two_collectives_only(received):
    """Refuse all others, and note how many numbers each call of these two delivers."""

    def guard(name):
        call, allowed = getattr(dist, name), name.startswith(ALLOWED)

        def guarded(*args, **kwargs):
            if not allowed or "object" in name:
                raise AssertionError(f"{name} was called, not one of {ALLOWED}")
            output, *_ = inspect.signature(call).bind(*args, **kwargs).args
            pieces = output if isinstance(output, list) else [output]
            received.append(sum(piece.numel() for piece in pieces))
            return call(*args, **kwargs)

        return guarded

    names = [name for name in dir(dist) if name.split("_")[0] in COLLECTIVE]
    with mock.patch.multiple(dist, **{name: guard(name) for name in names}):
        yield


def tensors_of(rank, device):
    """12 is a multiple of 2, 3 and 4, the rest need padding; nobody knows the last."""
    for length in (12, 7, 1):
        yield torch.arange(rank, rank + length, device=device)  # (length,)
    yield torch.tensor([secrets.randbelow(1000) for _ in range(10)], device=device)


def main(rank, world_size, device):
    # Host memory for gloo: which of these it does on a GPU depends on the release.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    facts = {"solved": False}
    for tensor in tensors_of(rank, device):
        length, before, expected = len(tensor), tensor.clone(), tensor.clone()
        # Every rank ends up with the sum of all tensors: the built-in is the truth.
        dist.all_reduce(expected, op=dist.ReduceOp.SUM)
        with two_collectives_only(received := []):
            got = all_reduce_by_hand(tensor, rank, world_size)
        if got is None:
            print(f"[rank {rank}] not yet", flush=True)
            break
        if not torch.equal(got, expected):
            sums = f"{got.tolist()}, expected {expected.tolist()}"
            raise AssertionError(f"length {length}: {sums}")
        if not torch.equal(tensor, before):
            raise AssertionError(f"length {length}: the tensor was changed")
        piece = -(-length // world_size)  # rounded up
        if received != [piece, piece * world_size]:
            enough = f"{piece} and then {piece * world_size} are enough"
            raise AssertionError(f"length {length}: received {received}, {enough}")
        if length == 7:
            count = f"received {received[0]} + {received[1]} numbers"
            print(f"[rank {rank}] length 7: {got.tolist()}, {count}", flush=True)
            facts["length_7"] = got.tolist()
    else:
        facts["solved"] = True
    return facts
