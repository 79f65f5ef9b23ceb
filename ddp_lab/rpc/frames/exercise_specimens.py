"""Four specimens of programs with remote references, each with one bug: cure them.

Worker 0 runs them against the last worker, by name or by reference:

    [rank 0] grow: ..., expected ...
"""

import json
import random
import threading
import time
from unittest import mock

import torch
from torch.distributed import rpc

STEPS = 8


class Guests(list):
    def append(self, guest):
        time.sleep(0.1)  # a guest who does not hold the lock meets the other one here
        super().append(guest)


class Slow(torch.Tensor):
    def add_(self, other):
        time.sleep(0.3)  # a caller who does not wait comes too early
        return super().add_(other)


# Each worker has its own.
HISTORY, GUESTS, GIFT = [], Guests(), random.randrange(2, 100)
DOOR = threading.Lock()  # for changing GUESTS
BOTH = threading.Barrier(2)  # no guest is welcomed alone, and no addition runs alone
OPTIONS = {"rpc_timeout": 2}


def grow(rref):
    return None  # the cell's function stands here


def repeat(owner):
    return None  # the cell's function stands here


def add_up(rref):
    return None  # the cell's function stands here


def enrol(name):
    return None  # the cell's function stands here


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


def slow_zeros():
    return torch.zeros(2).as_subclass(Slow)


def of_grow(owner):
    """What came out, what should, and what the bug makes of it."""
    rref = rpc.remote(owner, slow_zeros)
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
