"""Exercise: the mean and the spread of numbers that lie on other machines.

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/exercise_far.py

Every worker has six shards, and needs 0.2 s to read one. The target for worker 0:
at most 0.8 s for all of them, and at most three numbers that travel for each.

    [rank 0] not yet: write summary() and statistics()

Written by notebooks/14_remote_calls.ipynb.
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

SHARDS, SIZE = 6, 100_000  # of each worker; numbers in a shard
MOST_SECONDS, MOST_NUMBERS = 0.8, 3  # for all shards; for each shard


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
    """Run by every worker: read a shard of its own, slowly, and sum it up."""
    time.sleep(0.2)
    return summary(shard_of(rpc.get_worker_info().id, shard))


def shard_of(rank, shard):
    generator = torch.Generator().manual_seed(100 * rank + shard)
    return rank + shard + torch.randn(SIZE, generator=generator)


def travelled():
    """How many numbers come for a shard: those in tensors, and those beside them."""
    result = summary(shard_of(1, 0))
    parts = result if isinstance(result, tuple | list) else [result]
    return sum(torch.as_tensor(part).numel() for part in parts)


def judge(world_size):
    """Raise unless the numbers are right and the target is met."""
    start = time.monotonic()
    mean, spread = statistics([f"worker{rank}" for rank in range(1, world_size)])
    seconds = time.monotonic() - start
    ranks = range(1, world_size)
    truth = torch.cat([shard_of(r, s) for r in ranks for s in range(SHARDS)]).double()
    if abs(mean - truth.mean()) > 1e-3:
        raise AssertionError(f"the mean is {mean}, expected {truth.mean():.4f}")
    expected = truth.std(correction=0)
    if abs(spread - expected) > 1e-3:
        raise AssertionError(f"the deviation is {spread}, expected {expected:.4f}")
    numbers = travelled()
    if numbers > MOST_NUMBERS:
        raise AssertionError(f"{numbers} numbers a shard, at most {MOST_NUMBERS}")
    if seconds > MOST_SECONDS:
        raise AssertionError(f"{seconds:.1f} s, at most {MOST_SECONDS} s")
    return f"solved: {numbers} numbers a shard, {seconds:.1f} s"


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


@record
def run():
    with workers() as (rank, world_size):
        if facts := main(rank, world_size):
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    run()
