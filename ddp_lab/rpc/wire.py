"""What travels for a remote call: the kernel counts bytes and round trips on TCP.

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/wire.py

Written by notebooks/A1_remote_calls.ipynb.
"""

import json
import os
import socket
import stat
import struct
import sys
import threading
import time
import warnings
from contextlib import contextmanager
from functools import partial

import torch
from torch.distributed import rpc
from torch.distributed.elastic.multiprocessing.errors import record

LARGE = 1_000_000  # numbers, of four bytes each
# On one machine a large tensor would be copied past TCP, and not be counted.
OPTIONS = {"_channels": ["basic"]}
ROWS = {}  # by kind of call: bytes out, bytes back, round trips, pieces


def add_up(rref):
    return rref.local_value().sum()


def count(what, action):
    """Do it, and note the bytes sent, the bytes received, and the round trips."""
    before, result = settled(), action()
    out, back, *pieces = (n - b for n, b in zip(settled(), before, strict=True))
    # What an empty call sends and gets in small pieces is one round trip.
    unit = ROWS["an empty call"][-1] if ROWS else min(pieces)
    ROWS[what] = out, back, round(min(pieces) / unit), min(pieces)
    text = f"{out} bytes out, {back} back; round trips: {ROWS[what][2]}"
    print(f"[rank 0] {what}: {text}", flush=True)
    return result


def kinds_of_calls(to):
    """What each kind of call costs, in the order of a program's life."""
    large = torch.ones(LARGE)
    rpc.rpc_sync(to, len, args=(large,))  # the first one connects
    count("an empty call", partial(rpc.rpc_sync, to, os.getpid))
    count("a call with 4 MB", partial(rpc.rpc_sync, to, len, args=(large,)))
    rref = count("remote: 4 MB", partial(rpc.remote, to, torch.ones, args=((LARGE,),)))
    copy = count("to_here", rref.to_here)
    count("to_here, again", rref.to_here)
    there = count("a call with it", partial(rpc.rpc_sync, to, add_up, args=(rref,)))
    count("a method of it", lambda: rref.rpc_sync().sum())
    count("a method, again", lambda: rref.rpc_sync().sum())
    if not copy.sum() == there == LARGE:
        raise AssertionError(f"the sums are {copy.sum()} and {there}")


def settled():
    """The counters, once nothing is on its way any more."""
    before = None
    while (now := counters()) != before:
        before = now
        time.sleep(0.1)
    return now


def counters():
    """Of all TCP connections: bytes sent, received, and pieces received, sent."""
    total = [0, 0, 0, 0]
    for fd in map(int, os.listdir("/proc/self/fd")):
        try:
            if not stat.S_ISSOCK(os.fstat(fd).st_mode):
                continue
            with socket.fromfd(fd, socket.AF_INET, socket.SOCK_STREAM) as one:
                info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 160)
        except OSError:  # closed by now, or another kind of socket
            continue
        numbers = struct.unpack("120x2Q16x2I", info)
        total = [t + number for t, number in zip(total, numbers, strict=True)]
    return total


def main(rank, world_size):
    if sys.platform != "linux":
        raise SystemExit("wire.py asks Linux what its connections have sent")
    if rank != 0:
        return print(f"[rank {rank}] serves", flush=True)
    kinds_of_calls(f"worker{world_size - 1}")
    there, back = (4 * LARGE, 0), (0, 4 * LARGE)
    payloads = {"a call with 4 MB": there, "to_here": back, "to_here, again": back}
    for what, row in ROWS.items():
        for size, payload in zip(row[:2], payloads.get(what, (0, 0)), strict=True):
            if not 0 < size - payload < 2000:
                raise AssertionError(f"{what}: {row}, expected {payload}")
    return ROWS


# --- the same in every program: join the group, run main, leave whatever happens ---


@contextmanager
def workers(**options):
    """Join as worker0, worker1, ... over TCP: shared memory keeps a core busy."""
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if os.environ["LOCAL_WORLD_SIZE"] == os.environ["WORLD_SIZE"]:
        os.environ.setdefault("TP_SOCKET_IFNAME", socket.if_indextoname(1))  # loopback
    warnings.filterwarnings("ignore", "You are using a Backend")  # torch's own doing
    options = {"rpc_timeout": 20, "_transports": ["uv"], **options}
    options = rpc.TensorPipeRpcBackendOptions(**options)
    rpc.init_rpc(
        f"worker{rank}", rank=rank, world_size=world_size, rpc_backend_options=options
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
    with workers(**OPTIONS) as (rank, world_size):
        if facts := main(rank, world_size):
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    run()
