"""Exercise: a parameter server whose trainers stay within two steps of each other.

Every rank is a trainer, the last one a slow one; rank 0 serves as well. Fill in push():

    [rank 0] not yet
"""

import os
import threading
import time

import torch
from torch.distributed import rpc

BOUND = 2  # steps that a trainer may be ahead of the slowest
STEPS, WIDTH = 6, 4  # STEPS: of each trainer
FAST, SLOW = 0.005, 0.12  # seconds that a gradient takes
PATIENCE = 5  # seconds until an answer counts as forgotten
OPTIONS = {"rpc_timeout": PATIENCE, "num_worker_threads": 1}  # it must not wait


@rpc.functions.async_execution  # the trainer is answered when the future is set
def push(trainer, gradient):
    return None  # the cell's function stands here


class Server:
    """The weights, and by trainer how many of its gradients are in them."""

    def __init__(self, trainers):
        self.weights, self.clocks = torch.zeros(WIDTH), [0] * trainers
        self.waiting = {}
        self.lock = threading.Lock()  # for a server of several threads; here it has one
        self.leads, self.begun = [], []  # of each answer; when its step was begun
        self.due, self.vain = [0] * trainers, 0  # leads to answer at; waits in vain

    def apply(self, trainer, gradient):
        self.weights = self.weights - gradient
        self.clocks[trainer] += 1
        self.due[trainer] = min(BOUND, self.clocks[trainer] - min(self.clocks))

    def answer(self, trainer):
        """Return the weights that a trainer begins its next step with."""
        if self.clocks[trainer] < STEPS:
            self.leads.append(self.clocks[trainer] - min(self.clocks))
            self.vain += self.leads[-1] < self.due[trainer]
        return self.weights


server = Server(int(os.environ.get("WORLD_SIZE", "2")))  # that of rank 0 is called


def train(trainer, seconds):
    """Make all steps; return whether push() gave weights to make them with."""
    for step in range(STEPS):
        if step > 0:
            rpc.rpc_sync("worker0", begin, (trainer,))
        time.sleep(seconds)  # a big model would take that long
        gradient = torch.full((WIDTH,), 10.0**trainer)
        if rpc.rpc_sync("worker0", push, (trainer, gradient)) is None:
            return False
    return True


def begin(trainer):
    """Runs on rank 0: a trainer begins a step with the weights that it was given."""
    with server.lock:
        server.begun.append(server.clocks[trainer] - min(server.clocks))


def result():
    """Runs on rank 0: weights, answers, the largest lead, waits in vain; or None."""
    if min(server.clocks) == STEPS:
        lead = max(server.leads + server.begun)
        return server.weights, len(server.leads), lead, server.vain


def wait_for_all():
    end = time.monotonic() + PATIENCE
    while (found := rpc.rpc_sync("worker0", result)) is None:
        if time.monotonic() > end:
            raise AssertionError("not all trainers have come to their end")
        time.sleep(0.02)
    return found


def main(rank, world_size):
    if not train(rank, SLOW if rank == world_size - 1 else FAST):
        print(f"[rank {rank}] not yet", flush=True)
        return {"solved": False}
    weights, answers, lead, vain = wait_for_all()
    expected = -STEPS * sum(10.0**trainer for trainer in range(world_size))
    if weights.tolist() != [expected] * WIDTH:
        raise AssertionError(f"weights {weights.tolist()}, expected {expected}")
    if lead != BOUND:
        raise AssertionError(f"the largest lead is {lead}, not {BOUND}")
    if vain:
        raise AssertionError(f"{vain} times a trainer waited longer than it had to")
    if answers != world_size * (STEPS - 1):
        raise AssertionError(f"only {answers} answers were those of server.answer()")
    print(f"[rank {rank}] came to its end; largest lead: {lead}", flush=True)
    return {"solved": True, "lead": lead}
