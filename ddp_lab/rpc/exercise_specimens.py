"""Four specimens of programs with remote references, each with one bug: cure them.

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/exercise_specimens.py

Worker 0 runs them against the last worker, by name or by reference:

    [rank 0] grow: ..., expected ...

Written by notebooks/A1_remote_calls.ipynb.
"""

import json
import os
import random
import socket
import threading
import time
import warnings
from contextlib import contextmanager
from unittest import mock

import torch
from torch.distributed import rpc
from torch.distributed.elastic.multiprocessing.errors import record

STEPS = 8
HISTORY, GUESTS, GIFT = [], [], random.randrange(2, 100)  # each worker has its own
DOOR = threading.Lock()  # for changing GUESTS
BOTH = threading.Barrier(2)  # no guest is welcomed alone, and no addition runs alone
OPTIONS = {"rpc_timeout": 2}


def grow(rref):
    """1. Add 1 to each number of the remote tensor, where it is."""
    numbers = rref.to_here()
    numbers += 1


def repeat(owner):
    """2. Make STEPS tensors at `owner`, one after the other; return the last's RRef."""
    for step in range(STEPS):
        rref = rpc.remote(owner, torch.full, args=((2,), float(step)))
        HISTORY.append(rref)
    return rref


def add_up(rref):
    """3. Let the owner run slowly_add STEPS times, all at once; return the sum then."""
    for _ in range(STEPS):
        rpc.rpc_async(rref.owner(), slowly_add, args=(rref,))
    return rref.to_here().sum().item()


def enrol(name):
    """4. Run by the last worker: worker 0 greets a guest, who then gets a number."""
    with DOOR:
        greeting = rpc.rpc_sync("worker0", greet, args=(name, rpc.get_worker_info()))
        number = len(GUESTS)
        time.sleep(0.05)
        GUESTS.append((number, greeting))


def slowly_add(rref):
    time.sleep(0.2 if BOTH.wait(1.5) else 0.4)  # the first of two is the last to end
    with DOOR:
        rref.local_value().add_(GIFT)


def greet(name, host):
    """Run by worker 0, which asks the host how full the house is."""
    before = rpc.rpc_sync(host, guests)
    BOTH.wait(1.5)
    return f"welcome, {name}; before you: {before}"


def guests():
    with DOOR:
        return [number for number, _ in GUESTS]


def greetings():
    return sorted(greeting.partition(";")[0] for _, greeting in GUESTS)


def alive():
    return int(rpc._rref_context_get_debug_info()["num_owner_rrefs"]), GIFT


def settled(owner, expected):
    """How many objects live at `owner`, when as many do as should, or in the end."""
    deadline = time.monotonic() + 2
    while rpc.rpc_sync(owner, alive)[0] != expected and time.monotonic() < deadline:
        time.sleep(0.05)  # references are given back in the background
    time.sleep(0.3)  # and one too many may be given back yet
    return rpc.rpc_sync(owner, alive)[0]


def of_grow(owner):
    """What came out, what should, and what the bug makes of it."""
    rref = rpc.remote(owner, torch.zeros, args=((2,),))
    grow(rref)
    return rref.to_here().tolist(), [1.0, 1.0], [0.0, 0.0]


def of_repeat(owner):
    before, rref = settled(owner, 0), repeat(owner)
    value, more = rref.to_here().tolist(), settled(owner, 1) - before
    return (value, more), ([STEPS - 1.0] * 2, 1), ([STEPS - 1.0] * 2, STEPS)


def of_add_up(owner):
    rref = rpc.remote(owner, torch.zeros, args=((2,),))
    asleep = AssertionError("add_up sleeps; how long is long enough?")
    with mock.patch.object(time, "sleep", side_effect=asleep):
        total = add_up(rref)
    time.sleep(0.8)  # a wait that was forgotten, for the next specimen's sake
    right = 2.0 * STEPS * rpc.rpc_sync(owner, alive)[1]
    at_owner = rref.to_here().sum().item()
    return (total, at_owner), (right, right), (min(total, right - 1), right)


def of_enrol(owner):
    try:
        for future in [rpc.rpc_async(owner, enrol, args=(n,)) for n in ("Ada", "Bob")]:
            future.wait()
    except RuntimeError as error:
        came = "one guest at a time" if "Barrier" in str(error) else "too late"
        time.sleep(2.5)  # the other guest's calls are given up 2 seconds after these
        return came, [0, 1], "too late"
    if (greeted := rpc.rpc_sync(owner, greetings)) != ["welcome, Ada", "welcome, Bob"]:
        return greeted, [0, 1], "too late"
    return rpc.rpc_sync(owner, guests), [0, 1], "too late"


def tell(text, solved):
    """Run by every worker: what became of the specimens."""
    rank = rpc.get_worker_info().id
    print(f"[rank {rank}] {text}", flush=True)
    print(json.dumps({"solved": solved}), flush=True)


def main(rank, world_size):
    if rank != 0:
        return  # as far as this line; it serves calls until all are here
    ill = []
    for specimen in (of_grow, of_repeat, of_add_up, of_enrol):
        came, expected, usual = specimen(f"worker{world_size - 1}")
        name = specimen.__name__.removeprefix("of_")
        said = "cured" if came == expected else f"{came}, expected {expected}"
        print(f"[rank 0] {name}: {said}", flush=True)
        if came != expected:
            ill.append(name)
            if came != usual:
                raise AssertionError(f"{name}: {said}")
    text = f"not yet: {', '.join(ill)}" if ill else "all four are cured"
    for other in range(world_size):
        rpc.rpc_sync(f"worker{other}", tell, args=(text, not ill))


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
