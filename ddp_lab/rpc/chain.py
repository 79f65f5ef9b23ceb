"""A chain of calls from worker to worker: with threads that wait, and with none.

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/chain.py

Written by notebooks/A1_remote_calls.ipynb.
"""

import json
import os
import socket
import threading
import warnings
from contextlib import contextmanager

import torch
from torch.distributed import rpc
from torch.distributed.elastic.multiprocessing.errors import record

OPTIONS = {"rpc_timeout": 3, "num_worker_threads": 2}  # seconds; threads for calls


def waits(hops, total, world_size):
    """Add my id, call the next worker, and wait for what comes back."""
    me = rpc.get_worker_info().id
    if hops == 1:
        return total + me
    args = (hops - 1, total + me, world_size)
    return rpc.rpc_sync(f"worker{(me + 1) % world_size}", waits, args=args)


@rpc.functions.async_execution
def passes_on(hops, total, world_size):
    """Add my id, call the next worker, and return at once: a future, not a sum."""
    me = rpc.get_worker_info().id
    if hops == 1:
        future = torch.futures.Future()
        future.set_result(total + me)
        return future
    args = (hops - 1, total + me, world_size)
    return rpc.rpc_async(f"worker{(me + 1) % world_size}", passes_on, args=args)


def main(rank, world_size):
    if rank != 0:
        return print(f"[rank {rank}] serves", flush=True)
    for function, visits in {passes_on: 40, waits: 1}.items():  # to each worker
        hops, expected = visits * world_size, visits * sum(range(world_size))
        total = rpc.rpc_sync("worker1", function, args=(hops, 0, world_size))
        text = f"{function.__name__}, {hops} hops: the sum is {total}"
        print(f"[rank 0] {text}", flush=True)
        if total != expected:
            raise AssertionError(f"expected {expected}")


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
