"""Worker 0 calls functions of the others, in three ways, and gets what they raise.

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/calls.py

The others only serve:

    [rank 0] rpc_sync: worker1, id ..., says ...
    [rank 0] naps by rpc_sync, by rpc_async: [..., ...] s

Written by notebooks/12_remote_calls.ipynb.
"""

import json
import os
import socket
import threading
import time
import warnings
from contextlib import contextmanager

import torch
from torch.distributed import rpc
from torch.distributed.elastic.multiprocessing.errors import record

NAP = 0.3  # seconds
NAPS = []  # what this process has slept so far


def who(number):
    me = rpc.get_worker_info()
    return me.name, me.id, torch.tensor(number + me.id)


def nap(seconds):
    time.sleep(seconds)
    NAPS.append(seconds)
    return len(NAPS)


def complain(kind):
    raise kind("not like this")


def ask(to, function, *args, timeout):
    """rpc_sync that says which call came too late: torch does not."""
    try:
        return rpc.rpc_sync(to, function, args=args, timeout=timeout)
    except RuntimeError as error:
        told = ", ".join(map(repr, args))
        raise TimeoutError(f"{function.__name__}({told}) on {to}: {error}") from error


def three_ways(others):
    """Ask one by one, ask everybody at once, and leave a result where it is."""
    answers = [rpc.rpc_sync(name, who, args=(100,)) for name in others]
    for name, number, value in answers:
        print(f"[rank 0] rpc_sync: {name}, id {number}, says {value}", flush=True)
    start = time.monotonic()
    for name in others * 3:
        rpc.rpc_sync(name, nap, args=(NAP,))
    middle = time.monotonic()
    futures = [rpc.rpc_async(name, nap, args=(NAP,)) for name in others * 3]
    for future in futures:
        future.wait()  # all naps are under way: the first wait is nearly the last
    seconds = [round(middle - start, 1), round(time.monotonic() - middle, 1)]
    print(f"[rank 0] naps by rpc_sync, by rpc_async: {seconds} s", flush=True)
    rref = rpc.remote(others[-1], torch.full, args=((2, 2), 7.0))  # stays there
    copy = rref.to_here()  # (2, 2), a copy
    print(f"[rank 0] remote: {rref.owner_name()} owns the result", flush=True)
    return answers, seconds, copy.sum().item()


def errors(to):
    """The types in which errors of `to` arrive, and the last one's text."""
    arrived = {}
    for kind in (ValueError, ZeroDivisionError):
        try:
            rpc.rpc_sync(to, complain, args=(kind,))
        except Exception as error:
            arrived[kind.__name__], text = type(error).__name__, str(error)
    print(f"[rank 0] errors: {arrived}", flush=True)
    return arrived, text


def too_late(to):
    """The error of a call that takes too long; its nap goes on, and ends."""
    before = rpc.rpc_sync(to, nap, args=(0,))
    try:
        ask(to, nap, 2 * NAP, timeout=NAP)
    except TimeoutError as error:
        print(f"[rank 0] late: {error}", flush=True)
        time.sleep(2 * NAP)
        return str(error), rpc.rpc_sync(to, nap, args=(0,)) - before - 1
    raise AssertionError("the late call was not noticed")


@record
def main():
    with workers() as (rank, world_size):
        if rank != 0:
            return print(f"[rank {rank}] serves", flush=True)  # until all are done
        others = [f"worker{other}" for other in range(1, world_size)]
        answers, seconds, copied = three_ways(others)
        expected = [(f"worker{r}", r, 100 + r) for r in range(1, world_size)]
        if [(name, i, value.item()) for name, i, value in answers] != expected:
            raise AssertionError(f"answers {answers}, expected {expected}")
        if seconds[0] < 1.5 * seconds[1] or copied != 28:
            raise AssertionError(f"naps took {seconds} s, a sum of {copied}")
        arrived, trace = errors(others[-1])
        if f"name={others[-1]}" not in trace or "in complain" not in trace:
            raise AssertionError(f"no remote trace in {trace}")
        late, still = too_late(others[-1])
        if still != 1:
            raise AssertionError(f"{still} naps after the late call, expected 1")
        facts = dict(seconds=seconds, arrived=arrived, trace=trace, late=late)
        print(json.dumps(facts), flush=True)


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
