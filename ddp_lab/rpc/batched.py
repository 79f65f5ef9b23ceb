"""Gradients for one model: an update for each, or one for all that belong together.

    torchrun --standalone --nproc-per-node 4 ddp_lab/rpc/batched.py

Worker 0 keeps the weights; all workers, itself too, bring gradients and want weights:

    [rank 0] one by one: ... updates, ... s
    [rank 0] batched: ... updates, ... s

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

SIZE, STEPS, RATE, PAIRS = 300_000, 20, 0.1, 3


class Server:
    """Holds the weights, and an optimizer with a state as large again."""

    def __init__(self, trainers):
        self.weights = torch.nn.Parameter(torch.zeros(SIZE))
        self.optimizer = torch.optim.SGD([self.weights], lr=RATE, momentum=0.9)
        self.trainers, self.updates = trainers, 0
        self.lock, self.brought = threading.Lock(), []
        self.next_weights = torch.futures.Future()

    def update(self, gradient):
        """One step; return the weights after it."""
        self.weights.grad = gradient
        self.optimizer.step()
        self.updates += 1
        return self.weights.detach().clone()

    def one_by_one(self, gradient):
        with self.lock:  # calls come on several threads
            return self.update(gradient)

    @staticmethod
    @rpc.functions.async_execution
    def batched(rref, gradient):
        """Wait for the gradients of all, with no thread that waits; then one step."""
        self = rref.local_value()
        with self.lock:
            answer = self.next_weights  # a promise, the same for all of this step
            self.brought.append(gradient)
            if len(self.brought) == self.trainers:
                mean = torch.stack(self.brought).mean(0)
                self.brought, self.next_weights = [], torch.futures.Future()
                answer.set_result(self.update(mean))  # now all callers are answered
        return answer


def train(rref, rank, batched):
    """Bring a gradient, get weights, STEPS times; return the last weights' first."""
    weights = torch.zeros(SIZE)
    for _ in range(STEPS):
        gradient = weights - rank  # each pulls the weights towards its own rank
        if batched:
            args = (rref, gradient)
            weights = rpc.rpc_sync(rref.owner(), Server.batched, args=args)
        else:
            weights = rref.rpc_sync().one_by_one(gradient)
    return weights[0].item()


def one_process(world_size):
    """The truth for batched: SGD on the mean of the trainers' gradients."""
    weight, velocity = 0.0, 0.0
    for _ in range(STEPS):
        velocity = 0.9 * velocity + weight - sum(range(world_size)) / world_size
        weight -= RATE * velocity
    return weight


def measure(world_size, batched):
    """Let all workers train at the same time: updates, seconds, and last weights."""
    server = Server(world_size)
    rref, start = rpc.RRef(server), time.monotonic()
    futures = [
        rpc.rpc_async(f"worker{rank}", train, args=(rref, rank, batched))
        for rank in range(world_size)
    ]
    ends = [future.wait() for future in futures]
    seconds, way = time.monotonic() - start, "batched" if batched else "one by one"
    print(f"[rank 0] {way}: {server.updates} updates, {seconds:.2f} s", flush=True)
    return {"updates": server.updates, "seconds": seconds, "ends": ends}


@record
def main():
    with workers() as (rank, world_size):
        if rank != 0:
            return print(f"[rank {rank}] trains when it is asked to", flush=True)
        expected, pairs = one_process(world_size), []
        for _ in range(PAIRS):  # in turn, so that a busy moment hits both
            pair = [measure(world_size, batched) for batched in (False, True)]
            pairs.append(pair)
            if [way["updates"] for way in pair] != [STEPS * world_size, STEPS]:
                raise AssertionError(f"updates: {[way['updates'] for way in pair]}")
            if any(abs(end - expected) > 1e-3 for end in pair[1]["ends"]):
                raise AssertionError(f"{pair[1]['ends']}, expected {expected:.4f}")
        print(json.dumps({"pairs": pairs, "expected": expected}), flush=True)


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
