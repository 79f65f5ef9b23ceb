"""Who owns a remote object, who only refers to it, and when it dies.

    torchrun --standalone --nproc-per-node 3 ddp_lab/rpc/owner.py

Worker 0 makes a box on the last worker; those between keep a reference to it as well:

    [rank 0] made: ... references, ... boxes

Written by notebooks/12_remote_calls.ipynb.
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
from torch.distributed.nn import RemoteModule

KEPT = []  # references that this worker keeps for somebody
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


def keep(rref):
    KEPT.append(rref)


def drop():
    KEPT.clear()


def count():
    """How many references to its boxes others hold, and how many boxes live here."""
    return int(rpc._rref_context_get_debug_info()["num_forks"]), len(ALIVE)


def settled(owner, when, expected):
    """Ask the owner until it counts what we expect, or for five seconds."""
    deadline = time.monotonic() + 5
    while (now := rpc.rpc_sync(owner, count)) != expected:
        if time.monotonic() > deadline:
            raise AssertionError(f"{when}: {now}, expected {expected}")
        time.sleep(0.02)  # references are given back in the background
    print(f"[rank 0] {when}: {now[0]} references, {now[1]} boxes", flush=True)
    return now


def use(owner):
    """Use a box by each kind of call; return its reference."""
    rref = rpc.remote(owner, Box, args=(3,))
    sums = [rref.rpc_sync().add(1.0), rref.rpc_async().add(1.0).wait()]
    sums.append(rref.remote().add(1.0).to_here())
    copy = rref.to_here()  # a second box, here
    copy.add(100.0)  # which the owner never sees
    is_owner, doubled = rpc.rpc_sync(rref.owner(), double, args=(rref,))
    print(f"[rank 0] sums {sums}; doubled by its owner: {doubled}", flush=True)
    if (sums, is_owner, doubled) != ([3, 6, 9], True, 18) or rref.is_owner():
        raise AssertionError(f"sums {sums}, owner {is_owner}, doubled {doubled}")
    return rref


def module(owner):
    """A layer that lives on `owner` is called like one that lives here."""
    remote = RemoteModule(f"{owner}/cpu", torch.nn.Linear, args=(4, 2))
    x = torch.randn(8, 4)
    weight, bias = (rref.to_here() for rref in remote.remote_parameters())
    if not torch.allclose(remote(x), x @ weight.T + bias):
        raise AssertionError("the remote layer computes something else")
    print(f"[rank 0] a layer on {owner} computes x W + b", flush=True)


@record
def main():
    with workers() as (rank, world_size):
        if rank != 0:
            return print(f"[rank {rank}] serves", flush=True)  # until all are done
        owner = f"worker{world_size - 1}"
        between = [f"worker{other}" for other in range(1, world_size - 1)]
        rref, n = use(owner), len(between)
        seen = [settled(owner, "made", (1, 1))]
        for name in between:
            rpc.rpc_sync(name, keep, args=(rref,))
        seen.append(settled(owner, "shared", (1 + n, 1)))
        del rref
        # Of two workers nobody else has one, and the box is gone.
        seen.append(settled(owner, "dropped here", (n, min(n, 1))))
        for name in between:
            rpc.rpc_sync(name, drop)
        seen.append(settled(owner, "dropped everywhere", (0, 0)))
        module(owner)
        print(json.dumps({"seen": seen}), flush=True)


# --- the same in every program: join the group, and leave it whatever happens ---


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
