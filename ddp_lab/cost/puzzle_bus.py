"""Puzzle: what each link carried in an all_reduce, by the clock of the slowest rank.

    torchrun --standalone --nproc-per-node 3 ddp_lab/cost/puzzle_bus.py

Until `bus` is written, each rank prints:

    [rank 0] not yet

Written by notebooks/12_what_communication_costs.ipynb.
"""

import faulthandler
import gc
import json
import os
import secrets
from contextlib import contextmanager

import torch
import torch._dynamo
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils._python_dispatch import TorchDispatchMode

PATIENCE = 3  # seconds; torch._dynamo, which Diary needs, is imported above
NAMES = {"allgather": "all_gather", "allreduce": "all_reduce"}


def bus(size, mine, n):
    """Return the bus bandwidth of an all_reduce on n ranks, in GB/s.

    size: of the tensor, in MB; mine: milliseconds of this rank's call. The call took
    as long as its slowest rank, which one dist.all_reduce finds.
    """
    return None  # your code here


def goal(brought, size):
    """What each rank calls, and what it holds in the end."""
    n, slowest = len(brought), max(brought)[0]
    return ["all_reduce"], rounded(2 * (n - 1) / n * size / slowest)


class Diary(TorchDispatchMode):
    """Keeps each call of the process group, and tells it before it is made."""

    def __init__(self, brought, tells):
        super().__init__()
        self.calls, self.tells = [["brings", None, str(brought).strip("[]")]], tells

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        library, name, _ = str(function).split(".")
        if "c10d" in library and not name.startswith(("wait", "_wrap")):
            name = name.strip("_").removesuffix("_base")
            self.calls.append([NAMES.get(name, name), None, ""])
            if self.tells:
                print(json.dumps({"yours": {"calls": self.calls}}), flush=True)
        return function(*args, **(kwargs or {}))


def attempt(rank, brought, size, tells):
    """Try the reader's lines; return what all ranks did, and what they should have."""
    calls, holds = goal(brought, size)
    diary = Diary(brought[rank], tells)
    did = [diary.calls[0], *([call, None, ""] for call in calls)]
    target = {"calls": did, "holds": holds}
    if tells:
        print(json.dumps({"target": target}), flush=True)
    # If this rank waits forever, it shows its line, and ends.
    faulthandler.dump_traceback_later(PATIENCE, exit=True)
    with diary:
        mine = torch.tensor(brought[rank], dtype=torch.float64)
        got = bus(size, mine, len(brought))
    holding = None if got is None else rounded(got)
    yours = {"calls": diary.calls, "holds": holding}
    if tells and (len(diary.calls) > 1 or holding):
        print(json.dumps({"yours": yours}), flush=True)
    results = [None] * len(brought)
    # Every rank now knows what all did, so that all come to one verdict.
    dist.all_gather_object(results, (yours, target))
    faulthandler.cancel_dump_traceback_later()  # an unfinished message stalls it
    return zip(*results, strict=True)


def rounded(got):
    numbers = torch.as_tensor(got, dtype=torch.float64).flatten().tolist()
    return [round(number + 1e-9, 2) + 0.0 for number in numbers]  # .005 goes up


def draw(world_size):
    """Each rank's milliseconds and the size: some to look at, then some at random."""
    shown = [[[5], [9], [6], [4]][r % 4] for r in range(world_size)]
    drawn = [[[1 + secrets.randbelow(50)] for _ in shown], 20 + secrets.randbelow(80)]
    dist.broadcast_object_list(drawn)  # rank 0's numbers are now on all ranks
    return (shown, 12), drawn


def main(rank, world_size, device):
    for number, (brought, size) in enumerate(draw(world_size)):
        yours, targets = attempt(rank, brought, size, tells=number == 0)
        if not any(len(did["calls"]) > 1 or did["holds"] for did in yours):
            print(f"[rank {rank}] not yet", flush=True)
            return {"solved": False}
        if yours != targets:
            wrong = [r for r in range(world_size) if yours[r] != targets[r]]
            raise AssertionError(f"ranks {wrong} differ from the target")
    print(f"[rank {rank}] as the target", flush=True)
    return {"solved": True}


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
