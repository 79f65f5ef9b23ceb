"""Every rank sends to its right and receives from its left, all at the same time.

    torchrun --standalone --nproc-per-node 2 ddp_lab/p2p/exchange.py

If all sent first, all would wait for a receiver. Two cures, one result:

    [rank 0] in order: received ...
    [rank 0] in a batch: received ...

Written by notebooks/01_point_to_point.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

PATIENCE = timedelta(seconds=5)  # gloo's default is half an hour


def exchange_in_order(send_buf, recv_buf, left, right, group):
    """Even ranks send first, odd ranks receive first: there is always a pair."""
    if dist.get_rank() % 2 == 0:
        dist.send(send_buf, dst=right, group=group)  # the right one gets our number
        dist.recv(recv_buf, src=left, group=group)  # and we have the left one's
    else:
        dist.recv(recv_buf, src=left, group=group)
        dist.send(send_buf, dst=right, group=group)


def exchange_in_a_batch(send_buf, recv_buf, left, right, group):
    """Start both messages at once, so that neither waits for the other."""
    messages = [
        dist.P2POp(dist.isend, send_buf, right, group),
        dist.P2POp(dist.irecv, recv_buf, left, group),
    ]
    for work in dist.batch_isend_irecv(messages):
        work.wait()  # after the last wait() we have the left one's number


def shift(exchange, rank, world_size, device, group):
    """Pass 10 * rank on to the right; return what came from the left."""
    left, right = (rank - 1) % world_size, (rank + 1) % world_size
    send_buf = torch.tensor([10 * rank], device=device)  # (1,)
    recv_buf = torch.full((1,), -1, device=device)  # (1,)
    exchange(send_buf, recv_buf, left, right, group)
    return recv_buf.item()


def main(rank, world_size, device):
    # gloo's send and recv work on host memory only, even beside a GPU.
    host = torch.device("cpu")
    device = host if dist.get_backend() == "gloo" else device
    group = dist.new_group(timeout=PATIENCE)
    # In host memory everywhere, so over gloo: its sends wait for the receiver, and
    # a wrong order shows at once. NCCL's return early, and may hide one.
    ordered = shift(exchange_in_order, rank, world_size, host, group)
    print(f"[rank {rank}] in order: received {ordered}", flush=True)
    batched = shift(exchange_in_a_batch, rank, world_size, device, group)
    print(f"[rank {rank}] in a batch: received {batched}", flush=True)
    expected = 10 * (rank - 1 if rank else world_size - 1)
    if not ordered == batched == expected:
        raise AssertionError(f"got {ordered}, {batched}, expected {expected} twice")
    return {"in order": ordered, "in a batch": batched}


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
