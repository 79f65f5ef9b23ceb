"""The last worker freezes, then it is gone: what the others are told, and how soon.

    torchrun --standalone --nproc-per-node 3 ddp_lab/rpc/lost.py

Each that survives says so; without a time limit on the call, the first would wait on:

    [rank 0] frozen: after ... s: RPCErr:1:RPC ran for more than set timeout (...)
    [rank 0] gone: after ... s: ...

Written by notebooks/12_remote_calls.ipynb.
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

PATIENCE, FROZEN = 0.5, 2  # seconds
ARRIVED = threading.Semaphore(0)


def hello():
    return rpc.get_worker_info().name


def freeze():
    ctypes.PyDLL(None).sleep(FROZEN)  # keeps Python's lock: no other thread goes on


def never():
    """A call that the last worker does not live to answer."""
    ARRIVED.release()
    time.sleep(3600)


def told(rank, what, future):
    """Wait for a call that must fail; return after how long it did, and its text."""
    start = time.monotonic()
    try:
        future.wait()
    except RuntimeError as error:
        seconds, text = time.monotonic() - start, str(error)
        print(f"[rank {rank}] {what}: after {seconds:.1f} s: {text}", flush=True)
        return seconds, text
    raise AssertionError(f"{what}: the call came back")


def survive(rank, victim):
    """Call a worker that freezes, that is well again, and that is gone."""
    facts = {}
    if rank == 0:
        frozen = rpc.rpc_async(victim, freeze)
        time.sleep(0.1)
        late = rpc.rpc_async(victim, hello, timeout=PATIENCE)
        facts["frozen"] = told(rank, "frozen", late)
        frozen.wait()
        print(f"[rank 0] well again: {rpc.rpc_sync(victim, hello)}", flush=True)
    facts["gone"] = told(rank, "gone", rpc.rpc_async(victim, never))
    facts["after"] = told(rank, "a call to it", rpc.rpc_async(victim, hello))
    return facts


@record
def main():
    with workers() as (rank, world_size):
        if rank == world_size - 1:
            for _ in range(world_size - 1):
                ARRIVED.acquire()  # somebody's call has come
            print(f"[rank {rank}] is gone", flush=True)
            os._exit(0)  # no error, so torchrun lets the others go on
        facts = survive(rank, f"worker{world_size - 1}")
        if rank == 0 and not PATIENCE / 2 < facts["frozen"][0] < FROZEN:
            raise AssertionError(f"told after {facts['frozen'][0]:.1f} s")
        if facts["gone"][0] > 15:  # the limit of a call is 20 seconds
            raise AssertionError(f"told after {facts['gone'][0]:.1f} s")
        print(json.dumps(facts), flush=True)
        rpc.shutdown(graceful=False)  # alone: the graceful way would wait for ever


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
