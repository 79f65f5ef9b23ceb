"""Who owns a remote object, who only refers to it, and when it dies.

    torchrun --standalone --nproc-per-node 3 ddp_lab/rpc/owner.py

Written by notebooks/A1_remote_calls.ipynb.
"""

import json
import os
import socket
import threading
import time
import warnings
import weakref
from contextlib import contextmanager

import torch
from torch.distributed import rpc
from torch.distributed.elastic.multiprocessing.errors import record

KEPT = []  # references that this worker keeps for another
ALIVE = weakref.WeakSet()  # the boxes made here, until they die


class Box:
    """An object that stays with its owner."""

    def __init__(self, size):
        self.numbers = torch.zeros(size)
        ALIVE.add(self)

    def add(self, number):
        self.numbers += number
        return self.numbers.sum().item()


def double(rref):
    """Run by the owner: it reaches the object itself, and copies nothing."""
    box = rref.local_value()
    return rref.is_owner(), box.add(box.numbers.clone())


def keep(*rrefs):
    KEPT[:] = rrefs  # what was kept before is given back


def count():
    """How many references others hold to boxes here, and how many boxes live."""
    return int(rpc._rref_context_get_debug_info()["num_forks"]), len(ALIVE)


def use(owner):
    """Use a box by each kind of call; return its reference."""
    rref = rpc.remote(owner, Box, args=(3,))
    sums = [rref.rpc_sync().add(1.0), rref.rpc_async().add(1.0).wait()]
    sums.append(rref.remote().add(1.0).to_here())
    rref.to_here().add(100.0)  # to a copy here, which the owner never sees
    is_owner, doubled = rpc.rpc_sync(rref.owner(), double, args=(rref,))
    print(f"[rank 0] sums {sums}; doubled by its owner: {doubled}", flush=True)
    if (sums, is_owner, doubled) != ([3, 6, 9], True, 18) or rref.is_owner():
        raise AssertionError(f"sums {sums}, owner {is_owner}, doubled {doubled}")
    return rref


def settled(owner, when, expected):
    """Ask the owner until it counts what we expect, or for five seconds."""
    deadline = time.monotonic() + 5
    while (now := rpc.rpc_sync(owner, count)) != expected:
        if time.monotonic() > deadline:
            raise AssertionError(f"{when}: {now}, expected {expected}")
        time.sleep(0.02)  # references are given back in the background
    print(f"[rank 0] {when}: {now[0]} references, {now[1]} boxes", flush=True)
    return now


def main(rank, world_size):
    if rank != 0:
        return print(f"[rank {rank}] serves", flush=True)  # until all are done
    *between, owner = [f"worker{other}" for other in range(1, world_size)]
    rref, n = use(owner), len(between)
    seen = [settled(owner, "made", (1, 1))]
    for name in between:
        rpc.rpc_sync(name, keep, args=(rref,))
    seen.append(settled(owner, "shared", (1 + n, 1)))
    del rref  # with two workers this was the only one, and the box is gone
    seen.append(settled(owner, "dropped here", (n, min(n, 1))))
    for name in between:
        rpc.rpc_sync(name, keep)  # nothing
    seen.append(settled(owner, "dropped everywhere", (0, 0)))
    return {"seen": seen}


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
    with workers() as (rank, world_size):
        if facts := main(rank, world_size):
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    run()
