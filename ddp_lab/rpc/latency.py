"""A remote call against send and recv: the same numbers there and back, by pairs.

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/latency.py

Written by notebooks/18_remote_calls.ipynb.
"""

import gc
import json
import os
import socket
import threading
import time
import warnings
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed import rpc
from torch.distributed.elastic.multiprocessing.errors import record

SIZES, PAIRS, TIMES = (1, 1_000_000), 11, 10  # numbers; pairs; trips of each way


def by_call(send_buf, other):
    return rpc.rpc_sync(f"worker{other}", torch.clone, args=(send_buf,))


def by_messages(send_buf, other):
    recv_buf = torch.empty_like(send_buf)
    dist.send(send_buf, dst=other)
    dist.recv(recv_buf, src=other)  # rank 0 now holds what it has sent
    return recv_buf


def seconds(way, send_buf, other):
    start = time.monotonic()
    for _ in range(TIMES):
        if not torch.equal(way(send_buf, other), send_buf):
            raise AssertionError(f"{way.__name__} brought something else")
    return time.monotonic() - start


def main(rank, world_size, device):
    ratios, last, ways = [], world_size - 1, (by_call, by_messages)
    with workers():
        for buf in (torch.ones(size) for size in SIZES):
            if rank == 0:
                tries = range(1 + PAIRS)  # the first one warms up
                pairs = [[seconds(way, buf, last) for way in ways] for _ in tries]
                times = sorted(call / messages for call, messages in pairs[1:])
                text = f"a call takes {times[PAIRS // 2]:.1f} times as long"
                print(f"[rank 0] {buf.nbytes} bytes: {text}", flush=True)
                ratios.append(times)
            for _ in range((1 + PAIRS) * TIMES if rank == last else 0):
                dist.recv(buf, src=0)  # stands ready, at the matching lines
                dist.send(buf, dst=0)
    return {"ratios": ratios}


# --- the same in every program: join the group, run main, leave whatever happens ---


@contextmanager
def process_group():
    """A GPU per rank over NCCL; else gloo, on a shared GPU or the CPU."""
    device, backend = torch.device("cpu"), "gloo"
    if count := torch.cuda.device_count():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % count)
        torch.cuda.set_device(device)
        if count >= int(os.environ["LOCAL_WORLD_SIZE"]):
            backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, device_id=device if "nccl" in backend else None)
    try:
        yield dist.get_rank(), dist.get_world_size(), device
    finally:
        dist.destroy_process_group()
        gc.collect()  # a leftover gloo object could abort the process at exit


@contextmanager
def workers(rpc_timeout=20, **options):
    """Join as worker0, worker1, ...; on one machine, TensorPipe listens on loopback."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if os.environ["LOCAL_WORLD_SIZE"] == os.environ["WORLD_SIZE"]:
        os.environ.setdefault("TP_SOCKET_IFNAME", socket.if_indextoname(1))  # loopback
    warnings.filterwarnings("ignore", "You are using a Backend")  # torch's own doing
    options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=rpc_timeout, **options)
    rpc.init_rpc(
        f"worker{rank}",
        rank=rank,
        world_size=world_size,
        rpc_backend_options=options,
    )
    try:
        yield rank, world_size
    except BaseException:
        # Wait for nobody, and not long for a call that is still busy in this process.
        leave = threading.Thread(target=rpc.shutdown, args=(False,), daemon=True)
        leave.start()
        leave.join(2)
        raise
    if rpc._is_current_rpc_agent_set():  # not if the lesson has left by itself
        store = rpc.api._get_current_rpc_agent().store
        rpc.shutdown()  # waits until all are here, and no worker waits for a call
        store.set(f"left {rank}", "")
        if rank == 0:  # it may host the store, which the others use to the very end
            store.wait([f"left {other}" for other in range(world_size)])


@record
def run():
    with process_group() as (rank, world_size, device):
        if facts := main(rank, world_size, device):
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    run()
