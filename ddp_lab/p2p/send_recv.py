"""Rank 0 sends a number to each rank, and all of them are late: who waits for whom?

    torchrun --standalone --nproc-per-node 2 ddp_lab/p2p/send_recv.py

First by `send`, then by `isend`: both deliver. The facts say when each rank waited:

    [rank 0] handed out [101], then [201]
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


@contextmanager
def clock(spans, label):
    """Add [label, start, end] to `spans`, in the seconds of this machine's clock."""
    start = time.perf_counter()
    yield
    spans.append([label, start, time.perf_counter()])


def send_blocking(values, nap, device, spans):
    """Send values[r - 1] to rank r, one rank after the other; then do our own work."""
    for other, value in enumerate(values, start=1):
        send_buf = torch.full((1,), value, device=device)  # (1,)
        with clock(spans, f"send to {other}"):
            # Rank `other` will hold the value. gloo returns once it has called recv.
            dist.send(send_buf, dst=other)
    with clock(spans, "own work"):
        time.sleep(nap * len(values))  # stands for computing


def receive(nap, device, spans):
    """Come late, receive one number from rank 0 and return it."""
    recv_buf = torch.zeros(1, dtype=torch.int64, device=device)  # (1,)
    with clock(spans, "asleep"):
        time.sleep(nap)
    with clock(spans, "recv"):
        dist.recv(recv_buf, src=0)  # this rank now holds what rank 0 sent to it
    return recv_buf.item()


def send_immediate(values, nap, device, spans):
    """The same, but start all messages, then work, and wait for them at the end."""
    buffers = [torch.full((1,), value, device=device) for value in values]
    works = []
    for other, send_buf in enumerate(buffers, start=1):
        with clock(spans, f"isend to {other}"):
            # Rank `other` will hold the value. This returns whether it calls or not.
            works.append(dist.isend(send_buf, dst=other))
    with clock(spans, "own work"):
        time.sleep(nap * len(values))
    for other, work in enumerate(works, start=1):
        with clock(spans, f"wait for {other}"):
            work.wait()  # from here on send_buf may be changed again


def hand_out(send, base, nap, device):
    """Rank 0 sends base + r to rank r; return what arrived, and who was where when."""
    rank, spans = dist.get_rank(), []
    values = [base + other for other in range(1, dist.get_world_size())]
    dist.barrier()  # all clocks start together
    if rank == 0:
        send(values, nap, device, spans)
        return values, spans
    return receive(rank * nap, device, spans), spans


def main(rank, world_size, device):
    # gloo's send and recv work on host memory only, even beside a GPU.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    # A first message can take longer: keep it off the clock.
    hand_out(send_blocking, 0, 0.0, device)
    first, blocking = hand_out(send_blocking, 100, NAP, device)
    second, immediate = hand_out(send_immediate, 200, NAP, device)
    verb = "received" if rank else "handed out"
    print(f"[rank {rank}] {verb} {first}, then {second}", flush=True)
    expected = [100 + rank, 200 + rank]
    if rank and [first, second] != expected:
        raise AssertionError(f"got {[first, second]}, expected {expected}")
    backend = dist.get_backend().rpartition(":")[2]  # that of the device
    return {"backend": backend, "blocking": blocking, "immediate": immediate}


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
