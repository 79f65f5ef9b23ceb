"""Exercise: rank 0 collects the numbers of all ranks, however many each of them has.

    torchrun --standalone --nproc-per-node 2 ddp_lab/p2p/exercise_collect.py

Once `collect` is written, two ranks print:

    [rank 0] had 3 numbers, collected [0, 1, 2, ...]
    [rank 1] had 2 numbers

Written by notebooks/01_point_to_point.ipynb.
"""

import faulthandler
import gc
import json
import os
import secrets
from contextlib import contextmanager
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils._python_dispatch import TorchDispatchMode

PATIENCE = 30  # seconds; the lesson's --timeout comes before


def collect(mine, rank, world_size):
    """Return on rank 0 all numbers as one tensor, in rank order; elsewhere None.

    mine: (length,), int64, this rank's numbers, at least one. Only this rank knows how
    many there are. A buffer to receive into must have the size of its message.

    Use only dist.send, recv, isend, irecv and batch_isend_irecv.
    """
    return None  # your code here


def lists_of(rank, device):
    """First 3, 2, 1 or 4 numbers that can be told apart, then some at random."""
    count = 1 + (3 * rank + 2) % 4
    yield torch.arange(10 * rank, 10 * rank + count, device=device)
    drawn = [secrets.randbelow(1000) for _ in range(secrets.randbelow(30))]
    # Any number may be in a list, so none of them can stand for its end.
    yield torch.tensor([-1, torch.iinfo(torch.int64).min, *drawn], device=device)


class MessagesOnly(TorchDispatchMode):
    """Refuse each call that is no message of numbers, and note the sizes of those."""

    def __init__(self):
        super().__init__()
        self.sizes = {"sent": [], "received": []}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        library, name, _ = str(function).split(".")
        if "c10d" in library:
            if name not in ("send", "recv_", "recv_any_source_"):
                raise AssertionError(f"{name}: messages alone are allowed here")
            if name == "recv_" and args[2] == dist.get_rank():
                raise AssertionError("a rank cannot receive from itself")
            (tensor,) = args[0]
            self.sizes["sent" if name == "send" else "received"].append(tensor.numel())
        return function(*args, **(kwargs or {}))


def flat(got):
    """Return the numbers that `collect` returned, as a list."""
    try:
        return torch.as_tensor(got).tolist()
    except (TypeError, ValueError):  # a list of pieces, one for each rank
        raise AssertionError("a list of pieces; make them one by torch.cat") from None


def refuse(*args, **kwargs):
    raise AssertionError("an object was sent; send tensors of numbers")


def check_sizes(lists, sizes):
    """Each buffer had the size of its message; none had a size thought of before."""
    sent, received = (
        sorted(sum((by_rank[way] for by_rank in sizes), []))
        for way in ("sent", "received")
    )
    if sent != received:
        raise AssertionError(f"messages of {sent} numbers, buffers of {received}")
    if sent and sent[-1] > (longest := sum(map(len, lists))):
        raise AssertionError(f"a message of {sent[-1]} numbers; there are {longest}")


def main(rank, world_size, device):
    # gloo's send and recv work on host memory only, even beside a GPU.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    facts = {}
    for mine in lists_of(rank, device):
        # If a message never comes, each rank shows the line where it waits, and ends.
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        no_objects = patch.object(dist, "send_object_list", refuse)
        with no_objects, MessagesOnly() as messages:
            got = collect(mine.clone(), rank, world_size)
        answers = [None] * world_size
        # Every rank ends with what all had and got, so all come to one verdict.
        got = None if got is None else flat(got)
        answer = mine.tolist(), got, messages.sizes
        dist.all_gather_object(answers, answer)  # stuck here: isend without wait()?
        faulthandler.cancel_dump_traceback_later()  # leaving may take its time
        lists, (collected, *_), sizes = zip(*answers, strict=True)
        if collected is None:
            print(f"[rank {rank}] not yet", flush=True)
            return {"solved": False}
        if collected != sum(lists, []):
            raise AssertionError(f"got {collected}, expected {sum(lists, [])}")
        check_sizes(lists, sizes)
        if not facts:
            what = "" if rank else f", collected {collected}"
            print(f"[rank {rank}] had {len(mine)} numbers{what}", flush=True)
            facts = {"solved": True, "collected": collected}
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
