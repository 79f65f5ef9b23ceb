"""Exercise: every rank holds a number; give all of them the sum, by messages alone.

    torchrun --standalone --nproc-per-node 2 ddp_lab/p2p/exercise.py

Once `sum_by_messages` is written, two ranks print:

    [rank 0] brought 1, knows the sum 5
    [rank 1] brought 4, knows the sum 5

Written by notebooks/01_point_to_point.ipynb.
"""

import faulthandler
import gc
import json
import os
import secrets
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils._python_dispatch import TorchDispatchMode

PATIENCE = 30  # seconds; the lesson's --timeout comes before


def sum_by_messages(send_buf, rank, world_size):
    """Return the sum of all ranks' send_buf, on every rank, as a tensor of shape (1,).

    send_buf, of shape (1,), holds (rank + 1) ** 2 at first; then it holds a number that
    no other rank can know.

    Use only dist.send, recv, isend, irecv and batch_isend_irecv, for any number of
    ranks. A buffer to receive into: torch.empty_like(send_buf).
    """
    return None  # your code here


class MessagesOnly(TorchDispatchMode):
    """Refuse each call of the process group that is no message of numbers."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        library, name, _ = str(function).split(".")
        if "c10d" in library and name not in ("send", "recv_", "recv_any_source_"):
            raise AssertionError(f"{name}: messages alone are allowed here")
        if name == "recv_" and args[2] == dist.get_rank():
            raise AssertionError("a rank cannot receive from itself")
        return function(*args, **(kwargs or {}))


def main(rank, world_size, device):
    # gloo's send and recv work on host memory only, even beside a GPU.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    facts = {}
    for brought in ((rank + 1) ** 2, secrets.randbelow(1000)):
        send_buf = torch.tensor([brought], device=device)  # (1,)
        # If a message never comes, each rank shows the line where it waits, and ends.
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        with MessagesOnly():
            total = sum_by_messages(send_buf, rank, world_size)
        answers = [None] * world_size
        # Every rank ends with what all brought and found: they come to one verdict.
        answer = brought, None if total is None else int(total)
        dist.all_gather_object(answers, answer)  # stuck here: isend without wait()?
        faulthandler.cancel_dump_traceback_later()  # leaving may take its time
        numbers, sums = (list(column) for column in zip(*answers, strict=True))
        if sums == [None] * world_size:
            print(f"[rank {rank}] not yet", flush=True)
            return {"solved": False}
        if sums != [sum(numbers)] * world_size:
            raise AssertionError(f"the ranks hold {sums}, expected {sum(numbers)}")
        if not facts:
            known = f"brought {brought}, knows the sum {sums[rank]}"
            print(f"[rank {rank}] {known}", flush=True)
            facts = {"solved": True, "sum": sums[rank]}
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
