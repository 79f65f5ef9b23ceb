"""Exercise: the exact median of numbers on many ranks, with a few numbers sent.

    torchrun --standalone --nproc-per-node 4 ddp_lab/less/exercise_median.py

Fill in median(), which may call dist.all_reduce and nothing else. Until then:

    [rank 0] not yet

Written by notebooks/13_sending_less.ipynb.
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

TOP, MOST = 1024, 12  # the numbers are below TOP; at most so many may be reduced
ROUNDS = 5


def median(mine):
    """Return the median of all ranks' numbers: the same int on every rank.

    mine: whole numbers from 0 to 1023, in a tensor of shape (n,); n differs from rank
    to rank and may be 0. Of two middle numbers, the lower one counts, as in torch.
    Only dist.all_reduce is allowed, on tensors with at most 12 numbers in all.
    """
    return None  # your code here


class Counter(TorchDispatchMode):
    """Counts the numbers that are brought to all_reduce; refuses all other calls."""

    numbers = calls = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        library, name, _ = str(function).split(".")
        if "c10d" in library and not name.startswith(("wait", "_wrap")):
            if name not in ("allreduce_", "all_reduce"):
                raise AssertionError(f"only all_reduce is allowed, not {name}")
            self.calls += 1
            self.numbers += sum(tensor.numel() for tensor in tree_leaves(args[0]))
        return function(*args, **(kwargs or {}))


def draw(world_size, turn):
    """By rank, the numbers of all ranks: now an even number of them, now an odd one."""
    drawn = [None]
    if dist.get_rank() == 0:
        sizes = [1 + secrets.randbelow(9) ** 2 for _ in range(world_size)]
        sizes[secrets.randbelow(world_size)] = 0  # one rank has none
        sizes[sizes.index(max(sizes))] += (sum(sizes) + turn) % 2
        low = secrets.randbelow(TOP // 2)  # the others' numbers are not alike either
        drawn[0] = [
            [(low * rank + secrets.randbelow(TOP // 2)) % TOP for _ in range(size)]
            for rank, size in enumerate(sizes)
        ]
    dist.broadcast_object_list(drawn)  # every rank now holds what rank 0 drew
    return drawn[0]


def main(rank, world_size, device):
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    calls = numbers = 0
    for turn in range(ROUNDS):
        everyone = draw(world_size, turn)
        if turn == 0:  # the first and the last number there can be
            everyone = [[[0, TOP - 1][r % 2]] * (r + 1) for r in range(world_size)]
        mine = torch.tensor(everyone[rank], dtype=torch.int64, device=device)
        with Counter() as counter:
            answer = median(mine.clone())
        if answer is None:  # on all ranks alike, so no rank is left waiting
            print(f"[rank {rank}] not yet", flush=True)
            dist.barrier()  # to leave now would cut off those still joining
            return {"solved": False}
        expected = torch.tensor(sum(everyone, [])).median().item()  # the lower one
        if int(answer) != expected:
            raise AssertionError(f"median {int(answer)}, expected {expected}")
        if counter.numbers > MOST:
            raise AssertionError(f"{counter.numbers} numbers reduced, expected {MOST}")
        calls, numbers = max(calls, counter.calls), max(numbers, counter.numbers)
    print(f"[rank {rank}] exact, with {numbers} numbers in {calls} calls", flush=True)
    return {"solved": True, "numbers": numbers, "calls": calls}


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
