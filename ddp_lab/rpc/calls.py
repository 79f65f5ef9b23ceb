"""Worker 0 calls functions of the others in three ways, and gets their errors.

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/calls.py

Written by notebooks/A1_remote_calls.ipynb.
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

NAP, NAPS = 0.3, 3  # seconds; naps of each worker


def who(number):
    """Run by the worker that is called."""
    me = rpc.get_worker_info()
    return me.name, me.id, torch.tensor(number + me.id)


def one_by_one(others):
    for name in others * NAPS:
        rpc.rpc_sync(name, time.sleep, args=(NAP,))


def all_at_once(others):
    futures = [rpc.rpc_async(name, time.sleep, args=(NAP,)) for name in others * NAPS]
    for future in futures:
        future.wait()  # all naps are under way: the first wait is nearly the last


def seconds(ask, others):
    start = time.monotonic()
    ask(others)
    return round(time.monotonic() - start, 1)


def complain(kind):
    raise kind("not like this")


def arrives(to, kind):
    """The type in which an error raised by `to` arrives, and its text."""
    try:
        rpc.rpc_sync(to, complain, args=(kind,))
    except Exception as error:
        return type(error).__name__, str(error)


def main(rank, world_size):
    if rank != 0:
        return print(f"[rank {rank}] serves", flush=True)  # until all are done
    others = [f"worker{other}" for other in range(1, world_size)]
    answers = [rpc.rpc_sync(name, who, args=(100,)) for name in others]
    print(f"[rank 0] rpc_sync: {answers}", flush=True)
    if answers != [(f"worker{r}", r, 100 + r) for r in range(1, world_size)]:
        raise AssertionError(f"answers of {others}: {answers}")

    taken = [seconds(ask, others) for ask in (one_by_one, all_at_once)]
    print(f"[rank 0] naps one by one, all at once: {taken} s", flush=True)
    if taken[0] < 1.5 * taken[1] or taken[1] < NAP:
        raise AssertionError(f"naps took {taken} s")

    rref = rpc.remote(others[-1], torch.full, args=((2, 2), 7.0))  # stays there
    copy = rref.to_here()  # (2, 2), a copy
    print(f"[rank 0] remote: {copy.sum()} from {rref.owner_name()}", flush=True)

    kinds = (ValueError, ZeroDivisionError)
    arrived, texts = zip(*(arrives(others[-1], kind) for kind in kinds), strict=True)
    print(f"[rank 0] errors arrive as {arrived}", flush=True)
    if copy.sum() != 28 or "in complain" not in texts[-1]:
        raise AssertionError(f"{copy}, {texts[-1]}")
    return {"seconds": taken, "arrived": arrived, "trace": texts[-1]}


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
