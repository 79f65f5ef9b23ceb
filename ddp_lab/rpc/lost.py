"""A worker is late, then frozen, then gone: what the others are told, and how soon.

    torchrun --standalone --nproc-per-node 3 ddp_lab/rpc/lost.py

Written by notebooks/A1_remote_calls.ipynb.
"""

import ctypes
import json
import os
import socket
import threading
import time
import warnings
from contextlib import contextmanager

from torch.distributed import rpc
from torch.distributed.elastic.multiprocessing.errors import record

PATIENCE, LATE, FROZEN = 0.5, 1, 2  # seconds
NAPS, ARRIVED = [], threading.Semaphore(0)


def nap(seconds):
    time.sleep(seconds)
    NAPS.append(seconds)


def naps():
    return NAPS


def freeze(seconds):
    ctypes.PyDLL(None).sleep(seconds)  # keeps Python's lock: no other thread goes on


def told(rank, to, function, *args, timeout=20):
    """Make a call that must fail; return after how long it did, and its text."""
    start = time.monotonic()
    try:
        rpc.rpc_sync(to, function, args=args, timeout=timeout)
    except RuntimeError as error:
        seconds, text = time.monotonic() - start, str(error)
        call = f"{function.__name__}{args} on {to}"  # torch does not say which one
        print(f"[rank {rank}] after {seconds:.1f} s, {call}: {text}", flush=True)
        return seconds, text
    raise AssertionError(f"{function.__name__} on {to} came back")


def never():
    """A call that the last worker does not live to answer."""
    ARRIVED.release()
    time.sleep(3600)


def survive(rank, victim):
    """Call a worker that is late, then frozen, then well again, then gone."""
    facts = {}
    if rank == 0:
        facts["late"] = told(rank, victim, nap, LATE, timeout=PATIENCE)
        while not rpc.rpc_sync(victim, naps):  # it sleeps on, and comes to its end
            time.sleep(0.1)
        frozen = rpc.rpc_async(victim, freeze, args=(FROZEN,), timeout=0)  # no limit
        time.sleep(0.1)
        facts["frozen"] = told(rank, victim, naps, timeout=PATIENCE)
        frozen.wait()
        print(f"[rank 0] well again: {rpc.rpc_sync(victim, naps)}", flush=True)
    facts["gone"] = told(rank, victim, never)
    return facts | {"after": told(rank, victim, naps)}


def main(rank, world_size):
    if rank == world_size - 1:
        for _ in range(world_size - 1):
            ARRIVED.acquire()  # the call of one survivor has come
        print(f"[rank {rank}] is gone", flush=True)
        os._exit(0)  # no error, so torchrun lets the others go on
    facts = survive(rank, f"worker{world_size - 1}")
    if rank == 0 and not PATIENCE / 2 < facts["frozen"][0] < FROZEN:
        raise AssertionError(f"told after {facts['frozen'][0]:.1f} s")
    if facts["gone"][0] > 15:  # the limit of a call is 20 seconds
        raise AssertionError(f"told after {facts['gone'][0]:.1f} s")
    print(json.dumps(facts), flush=True)
    rpc.shutdown(graceful=False)  # alone: the graceful way would wait forever


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
