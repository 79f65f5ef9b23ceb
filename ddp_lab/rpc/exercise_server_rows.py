"""Exercise: some items are wanted again and again; let each row travel once.

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/exercise_server_rows.py

Rank 0 serves a table; all ranks look up their items in it. Fill in look_up():

    [rank 0] not yet

Written by notebooks/A2_training_over_rpc.ipynb.
"""

import json
import os
import socket
import threading
import warnings
from contextlib import contextmanager

import torch
import torch.distributed.autograd as dist_autograd
from torch import nn
from torch.distributed import rpc
from torch.distributed.elastic.multiprocessing.errors import record

ITEMS, WIDTH, WANTED = 100, 8, 64
OPTIONS = {"rpc_timeout": 5}


def look_up(ids, fetch):
    """Return the rows of `ids`, in their order: a tensor of (WANTED, WIDTH).

    fetch(some_ids) calls the server, and returns a row for each of some_ids.
    In backward, a row's gradient travels for each row that was fetched.

    Target: one call, in which no row comes twice, and the gradient of one process.
    """
    raise NotImplementedError


torch.manual_seed(0)
table = nn.Embedding(ITEMS, WIDTH)  # in every process; that of rank 0 is called


def rows_of(ids):
    return table(ids)


def gradient(context):
    return dist_autograd.get_gradients(context).get(table.weight)


def wanted(rank):
    """Item k is wanted 1 / (k + 1) times as often as item 0."""
    generator = torch.Generator().manual_seed(rank)
    weights = 1 / torch.arange(1.0, ITEMS + 1)
    return torch.multinomial(weights, WANTED, replacement=True, generator=generator)


def loss_of(rows):
    return (rows * torch.arange(float(WANTED)).unsqueeze(1)).square().sum()


def train_step(ids):
    """Return what was fetched, call by call, and the gradient that came of it."""
    fetched = []

    def fetch(some_ids):
        fetched.append(len(some_ids))
        return rpc.rpc_sync("worker0", rows_of, (some_ids,))

    with dist_autograd.context() as context:
        rows = look_up(ids, fetch)
        assert rows.shape == (WANTED, WIDTH), f"rows of the shape {tuple(rows.shape)}"
        dist_autograd.backward(context, [loss_of(rows)])
        return fetched, rpc.rpc_sync("worker0", gradient, (context,))


def main(rank, world_size):
    ids = wanted(rank)
    try:
        fetched, found = train_step(ids)
    except NotImplementedError:
        print(f"[rank {rank}] not yet", flush=True)
        return {"solved": False}
    (expected,) = torch.autograd.grad(loss_of(table(ids)), table.weight)
    if found is None:
        raise AssertionError("the table has no gradient")
    torch.testing.assert_close(found, expected, msg="gradient differs")
    least = len(set(ids.tolist()))
    if fetched != [least]:
        raise AssertionError(f"fetched {fetched} rows, expected [{least}]")
    print(f"[rank {rank}] fetched {fetched[0]} rows for {WANTED} items", flush=True)
    return {"solved": True, "fetched": fetched[0]}


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
