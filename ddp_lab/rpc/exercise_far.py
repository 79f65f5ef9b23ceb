"""Exercise: the mean and the spread of numbers that lie on other machines.

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/exercise_far.py

Every worker has six shards, and needs 0.2 s to read one. The target for worker 0:
three of them are read at a time, and at most three numbers travel for each.

    [rank 0] not yet: write summary() and statistics()

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
from torch.utils._pytree import tree_leaves

SHARDS, SIZE = 6, 100_000  # of each worker; numbers in a shard
AT_ONCE, MOST_NUMBERS = 3, 3  # shards of a worker; for each shard
SEED = torch.Generator().seed()  # another one in each process, which has its own data
READING, READ = [], []  # shards; and of each: how many at once, how many numbers


def summary(numbers):
    """Run where a shard is: return what statistics() has to know about it."""
    raise NotImplementedError


def statistics(names):
    """Run by worker 0: return mean and standard deviation of all shards of `names`.

    `rpc.rpc_sync(name, read, args=(shard,))` and its relatives bring what summary()
    makes of that shard, for shard 0 to SHARDS - 1. Divide by the count, not count - 1.
    """
    raise NotImplementedError


def read(shard):
    """Run by every worker: read one of its shards, slowly, and sum it up."""
    READING.append(shard)
    time.sleep(0.2)
    at_once = len(READING)
    READING.remove(shard)
    result = summary(shard_of(shard))
    numbers = sum(torch.as_tensor(leaf).numel() for leaf in tree_leaves(result))
    READ.append((shard, at_once, numbers))
    return result


def shard_of(shard):
    generator = torch.Generator().manual_seed(SEED + shard)
    center, spread = 5 * torch.rand(2, generator=generator)
    return center + spread * torch.randn(SIZE, generator=generator)


def have_read():
    return READ


def look_closely(name):
    """Raise unless this worker read each shard once, some together; return the most."""
    shards, at_once, numbers = zip(*rpc.rpc_sync(name, have_read), strict=True)
    if sorted(shards) != [*range(SHARDS)]:
        raise AssertionError(f"{name} has read {sorted(shards)}, expected each once")
    if max(at_once) < AT_ONCE:
        text = f"{name} has read {max(at_once)} at a time, expected {AT_ONCE}"
        raise AssertionError(text)
    if max(numbers) > MOST_NUMBERS:
        raise AssertionError(f"{max(numbers)} numbers a shard, at most {MOST_NUMBERS}")
    return max(numbers)


def judge(world_size):
    """Raise unless the numbers are right and the target is met."""
    names = [f"worker{rank}" for rank in range(1, world_size)]
    mean, spread = statistics(names)
    if not all(rpc.rpc_sync(name, have_read) for name in names):
        raise AssertionError("a worker has read nothing: whose numbers are these?")
    numbers = max(look_closely(name) for name in names)
    shards = [(name, shard_of, (s,)) for name in names for s in range(SHARDS)]
    truth = torch.cat([rpc.rpc_sync(*call) for call in shards]).double()
    if abs(mean - truth.mean()) > 1e-3:
        raise AssertionError(f"the mean is {mean}, expected {truth.mean():.4f}")
    expected = truth.std(correction=0)
    if abs(spread - expected) > 1e-3:
        raise AssertionError(f"the deviation is {spread}, expected {expected:.4f}")
    return f"solved: {numbers} numbers a shard, and {AT_ONCE} or more read at a time"


def tell(text, solved):
    """Run by every worker: what came of it."""
    print(f"[rank {rpc.get_worker_info().id}] {text}", flush=True)
    print(json.dumps({"solved": solved}), flush=True)


def main(rank, world_size):
    if rank != 0:
        return  # as far as this line; it serves calls until all are here
    try:
        text, solved = judge(world_size), True
    except NotImplementedError:
        text, solved = "not yet: write summary() and statistics()", False
    for other in range(world_size):
        rpc.rpc_sync(f"worker{other}", tell, args=(text, solved))


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
