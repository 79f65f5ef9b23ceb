"""A remote call against send and recv: the same numbers, there and back, in turn.

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/latency.py

Rank 0 measures both ways to the last rank, in pairs:

    [rank 0] 4 bytes: a call takes ... ms, ... times as long as send and recv

Written by notebooks/12_remote_calls.ipynb.
"""

import gc
import json
import os
import socket
import statistics
import threading
import time
import warnings
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed import rpc
from torch.distributed.elastic.multiprocessing.errors import record

SIZES = (1, 1_000_000)  # numbers, of four bytes each
PAIRS, TIMES = 11, 10  # how often both are measured, and calls in each


def echo(tensor):
    return tensor


def by_call(tensor, other):
    """The last rank's main thread has no part in it."""
    return rpc.rpc_sync(f"worker{other}", echo, args=(tensor,))


def by_messages(tensor, other):
    """The last rank stands ready, at the matching lines."""
    recv_buf = torch.empty_like(tensor)
    dist.send(tensor, dst=other)
    dist.recv(recv_buf, src=other)  # rank 0 now holds what it has sent
    return recv_buf


def stand_ready(size):
    """Send back what comes, as often as rank 0 will send."""
    buf = torch.empty(size)
    for _ in range((1 + PAIRS) * TIMES):
        dist.recv(buf, src=0)
        dist.send(buf, dst=0)


def seconds(way, tensor, other):
    """The mean time of one way there and back."""
    start = time.monotonic()
    for _ in range(TIMES):
        came = way(tensor, other)
    taken = (time.monotonic() - start) / TIMES
    if not torch.equal(came, tensor):
        raise AssertionError(f"{way.__name__} brought something else")
    return taken


def measure(size, other):
    """Milliseconds of a call, and by pairs: how many times as long it takes."""
    tensor = torch.arange(float(size))
    both = (by_call, by_messages)
    for way in both:
        seconds(way, tensor, other)  # to warm up
    pairs = [[seconds(way, tensor, other) for way in both] for _ in range(PAIRS)]
    ratios = sorted(call / messages for call, messages in pairs)
    call = 1000 * statistics.median(call for call, _ in pairs)
    ratio = ratios[len(ratios) // 2]
    text = f"a call takes {call:.2f} ms, {ratio:.1f} times as long as send and recv"
    print(f"[rank 0] {4 * size} bytes: {text}", flush=True)
    return {"bytes": 4 * size, "ms": call, "ratios": [ratios[0], ratio, ratios[-1]]}


@record
def main():
    with process_group() as (rank, world_size, _), workers():
        rows = []
        if rank != 0:
            part = "stands ready" if rank == world_size - 1 else "takes no part"
            print(f"[rank {rank}] {part}", flush=True)
        for size in SIZES:
            if rank == 0:
                rows.append(measure(size, world_size - 1))
            elif rank == world_size - 1:
                stand_ready(size)
        print(json.dumps({"rows": rows}), flush=True)


# --- the same in every program: join the group, and leave it whatever happens ---


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
    """Join as worker0, worker1, ...; on one machine, nobody outside can reach us."""
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
        rpc.shutdown()  # waits until all are here, and nobody waits for a call


if __name__ == "__main__":
    main()
