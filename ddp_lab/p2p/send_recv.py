"""Rank 0 sends a number to each rank, and all of them are late: who waits for whom?

    torchrun --standalone --nproc-per-node 2 ddp_lab/p2p/send_recv.py

First by `send`, then by `isend`: both deliver. The facts say when each rank waited:

    [rank 0] sent [101], then [201]
    [rank 1] received 101, then 201

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

NAP = 0.5  # seconds; rank r is r naps late

SPANS = []  # [label, start, end] of what this rank did


@contextmanager
def clock(label):
    """Note when a block begins and ends, in the seconds of this machine's clock."""
    start = time.perf_counter()
    yield
    SPANS.append([label, start, time.perf_counter()])


def by_send(buffers):
    """Send buffers[r - 1] to rank r, one rank after the other; then work."""
    for other, send_buf in enumerate(buffers, start=1):
        with clock(f"send to {other}"):
            dist.send(send_buf, dst=other)  # rank `other` will hold it
    with clock("own work"):
        time.sleep(NAP * len(buffers))  # stands for computing


def by_isend(buffers):
    """Start all messages, then work, and wait for the messages at the end."""
    works = []
    for other, send_buf in enumerate(buffers, start=1):
        with clock(f"isend to {other}"):
            works.append(dist.isend(send_buf, dst=other))
    with clock("own work"):
        time.sleep(NAP * len(buffers))
    for other, work in enumerate(works, start=1):
        with clock(f"wait for {other}"):
            work.wait()  # from here on send_buf may be changed again


def receive(nap, device):
    """Come late, receive one number from rank 0 and return it."""
    recv_buf = torch.zeros(1, dtype=torch.int64, device=device)  # (1,)
    with clock("asleep"):
        time.sleep(nap)
    with clock("recv"):
        dist.recv(recv_buf, src=0)  # this rank now holds what rank 0 sent to it
    return recv_buf.item()


def hand_out(send, base, device):
    """Rank 0 sends base + r to rank r; return what arrived, and who was where when."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    values = [base + other for other in range(1, world_size)]
    buffers = [torch.full((1,), value, device=device) for value in values]
    SPANS.clear()
    dist.barrier()  # all clocks start together
    if rank == 0:
        send(buffers)
        return values, [*SPANS]
    return receive(rank * NAP, device), [*SPANS]


def warm_up(rank, world_size, device):
    """A first message between two ranks can take longer: keep it off the clock."""
    for other in range(1, world_size):
        if rank == 0:
            dist.send(torch.zeros(1, device=device), dst=other)
    if rank:
        dist.recv(torch.zeros(1, device=device), src=0)


def main(rank, world_size, device):
    # gloo's send and recv work on host memory only, even beside a GPU.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    warm_up(rank, world_size, device)
    first, blocking = hand_out(by_send, 100, device)
    second, immediate = hand_out(by_isend, 200, device)
    verb = "received" if rank else "sent"
    print(f"[rank {rank}] {verb} {first}, then {second}", flush=True)
    expected = [100 + rank, 200 + rank]
    if rank and [first, second] != expected:
        raise AssertionError(f"got {[first, second]}, expected {expected}")
    backend = dist.get_backend().rpartition(":")[2]  # that of the device
    return {"backend": backend, "send": blocking, "isend": immediate}


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
