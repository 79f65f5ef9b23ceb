"""Exercise: build all_reduce out of reduce_scatter and all_gather.

    torchrun --standalone --nproc-per-node 3 ddp_lab/collectives/exercise.py

Once `all_reduce_by_hand` is written, four ranks print:

    [rank 0] length 7: [6, 10, 14, 18, 22, 26, 30], received 2 + 8 numbers

Written by notebooks/02_collectives.ipynb.
"""

import gc
import json
import os
import secrets
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# How PyTorch's own names of the two begin, whatever underscores are in them.
ALLOWED = ("reducescatter", "allgather")


def all_reduce_by_hand(tensor, rank, world_size):
    """Return the sum of `tensor` over all ranks, on every rank.

    Use dist.reduce_scatter_tensor and dist.all_gather_into_tensor, each of them once.
    tensor: (length,), the same length on every rank, any length from 1 up.
    result: (length,), a new tensor; `tensor` itself stays as it was.

    Both collectives need pieces of equal size, one for each rank; where length is not
    a multiple of world_size, something must be added at the end, and removed again.
    """
    return None  # your code here


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
        with TwoCollectives() as calls:
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
        if calls.received != [piece, piece * world_size]:
            told = f"{calls.received}; {piece} and {piece * world_size} are enough"
            raise AssertionError(f"length {length}: received {told}")
        if length == 7:
            count = f"received {piece} + {piece * world_size} numbers"
            print(f"[rank {rank}] length 7: {got.tolist()}, {count}", flush=True)
            facts["length_7"] = got.tolist()
    else:
        facts["solved"] = True
    return facts


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
