"""Gradients for one model: an update for each, or one for all that belong together.

    torchrun --standalone --nproc-per-node 4 ddp_lab/rpc/batched.py

Written by notebooks/18_remote_calls.ipynb.
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

STEPS, RATE = 20, 0.1


class Server:
    """Holds the weight."""

    def __init__(self, trainers):
        self.weight, self.updates = torch.zeros(()), 0
        self.trainers, self.brought = trainers, []
        self.lock = threading.Lock()  # calls come on several threads
        self.next_weight = torch.futures.Future()

    def update(self, gradient):
        """One step; return the weight after it."""
        self.updates += 1
        self.weight = self.weight - RATE * gradient
        return self.weight

    def one_by_one(self, gradient):
        with self.lock:
            return self.update(gradient)

    @staticmethod
    @rpc.functions.async_execution
    def batched(rref, gradient):
        """Collect the gradients of all, with no thread that waits; then one step."""
        self = rref.local_value()
        with self.lock:
            answer = self.next_weight  # a promise, the same for all of this step
            self.brought.append(gradient)
            if len(self.brought) == self.trainers:
                mean = torch.stack(self.brought).mean(0)
                self.brought, self.next_weight = [], torch.futures.Future()
                answer.set_result(self.update(mean))  # now all callers are answered
        return answer


def train(rref, rank, batched):
    """Bring a gradient, get the weight, STEPS times; return the last weight."""
    weight = torch.zeros(())
    for _ in range(STEPS):
        gradient = weight - rank  # each pulls the weight toward its own rank
        if batched:
            args = (rref, gradient)
            weight = rpc.rpc_sync(rref.owner(), Server.batched, args=args)
        else:
            weight = rref.rpc_sync().one_by_one(gradient)
    return weight.item()


def one_process(world_size):
    """The truth for batched: each step takes the mean of the trainers' gradients."""
    weight = 0.0
    for _ in range(STEPS):
        weight -= RATE * (weight - sum(range(world_size)) / world_size)
    return weight


def main(rank, world_size):
    if rank != 0:
        return print(f"[rank {rank}] trains when it is asked to", flush=True)
    facts, expected = {}, one_process(world_size)
    for way, updates in {"one by one": STEPS * world_size, "batched": STEPS}.items():
        server, trainers = Server(world_size), range(world_size)
        given = [(rpc.RRef(server), r, way == "batched") for r in trainers]
        calls = [rpc.rpc_async(f"worker{r}", train, given[r]) for r in trainers]
        ends = [future.wait() for future in calls]
        print(f"[rank 0] {way}: {server.updates} updates", flush=True)
        facts[way] = {"updates": server.updates, "ends": ends}
        far = max(abs(end - expected) for end in ends)
        if server.updates != updates or (way == "batched" and far > 1e-3):
            raise AssertionError(f"{facts}, expected {expected:.4f}")
    return facts | {"expected": expected}


# --- the same in every program: join the group, run main, leave whatever happens ---


@contextmanager
def workers(rpc_timeout=20, **options):
    """Join as worker0, worker1, ...; on one machine, TensorPipe listens on loopback."""
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
