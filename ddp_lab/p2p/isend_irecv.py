"""A buffer is not yours between isend or irecv and wait(): what is in it until then?

    torchrun --standalone --nproc-per-node 2 ddp_lab/p2p/isend_irecv.py

The receiver looks too early, then the sender writes too early; the facts count what
each receiver saw. Only what holds after wait() is promised, and only that is printed:

    [rank 1] after wait() 100 of 100 numbers were right

Written by notebooks/01_point_to_point.ipynb.
"""

import gc
import json
import os
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

REPEATS, SPOILT = 100, -1
PAUSE = 0.002  # seconds


def send_to_all(step, world_size, device, spoil):
    """Send step + 1 to every other rank; with `spoil`, overwrite it before wait()."""
    send_buf = torch.full((1,), step + 1, device=device)  # (1,)
    # The others will hold what is in send_buf when it is read, whenever that is.
    works = [dist.isend(send_buf, dst=other) for other in range(1, world_size)]
    if spoil:
        send_buf.fill_(SPOILT)
    for work in works:
        work.wait()  # only after the last wait() is send_buf ours again


def receive_and_look(device):
    """Receive a number; return what the buffer held before wait() and after it."""
    recv_buf = torch.zeros(1, dtype=torch.int64, device=device)  # (1,)
    work = dist.irecv(recv_buf, src=0)  # recv_buf will hold rank 0's number, sometime
    time.sleep(PAUSE / 2)  # stands for other work
    before = recv_buf.item()
    work.wait()  # only now is this rank sure to hold rank 0's number
    return before, recv_buf.item()


def repeat(rank, world_size, device, spoil):
    """Do all steps; return what was seen before wait() and after it, step by step."""
    before, after = [0] * REPEATS, [0] * REPEATS
    for step in range(REPEATS):
        # Sender and receivers take turns being late; if one always were, luck would
        # look like a rule.
        if step % 2 == (rank == 0):
            time.sleep(PAUSE)
        if rank == 0:
            send_to_all(step, world_size, device, spoil)
        else:
            before[step], after[step] = receive_and_look(device)
    return before, after


def main(rank, world_size, device):
    # gloo's send and recv work on host memory only, even beside a GPU.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    looked, received = repeat(rank, world_size, device, spoil=False)
    _, arrived = repeat(rank, world_size, device, spoil=True)
    if rank == 0:
        print(f"[rank 0] sent {REPEATS} numbers to each other rank", flush=True)
        return {"sent": REPEATS}
    expected = [step + 1 for step in range(REPEATS)]
    right = sum(a == b for a, b in zip(received, expected, strict=True))
    counts = f"{right} of {REPEATS}"
    print(f"[rank {rank}] after wait() {counts} numbers were right", flush=True)
    old, spoilt = looked.count(0), arrived.count(SPOILT)
    if right != REPEATS:
        raise AssertionError(f"{counts} numbers are right, expected all")
    return {"right": right, "old": old, "spoilt": spoilt}


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
