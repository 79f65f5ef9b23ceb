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
OPTIONS = {"rpc_timeout": PATIENCE}


@rpc.functions.async_execution  # the trainer is answered when the future is set
def push(trainer, gradient):
    return None  # the cell's function stands here


class Server:
    """The weights, and by trainer how many of its gradients are in them."""

    def __init__(self, trainers):
        self.weights, self.clocks = torch.zeros(WIDTH), [0] * trainers
        self.waiting = {}
        self.lock = threading.Lock()  # push() runs on several threads
        self.leads = []  # with which a step was begun
        self.end = threading.Barrier(trainers)

    def apply(self, trainer, gradient):
        self.weights = self.weights - gradient
        self.clocks[trainer] += 1

    def answer(self, trainer):
        """Return the weights that a trainer begins its next step with."""
        if self.clocks[trainer] < STEPS:
            self.leads.append(self.clocks[trainer] - min(self.clocks))
        return self.weights


server = Server(int(os.environ.get("WORLD_SIZE", "2")))  # that of rank 0 is called


def train(trainer, seconds):
    """Make all steps; return whether push() gave weights to make them with."""
    for _ in range(STEPS):
        time.sleep(seconds)  # a big model would take that long
        gradient = torch.full((WIDTH,), 10.0**trainer)
        if rpc.rpc_sync("worker0", push, (trainer, gradient)) is None:
            return False
    return True


def result():
    """Runs on rank 0: wait for all; return the weights and the largest lead."""
    server.end.wait(PATIENCE)
    return server.weights, max(server.leads)


def main(rank, world_size):
    if not train(rank, SLOW if rank == world_size - 1 else FAST):
        print(f"[rank {rank}] not yet", flush=True)
        return {"solved": False}
    weights, lead = rpc.rpc_sync("worker0", result)
    expected = -STEPS * sum(10.0**trainer for trainer in range(world_size))
    if weights.tolist() != [expected] * WIDTH:
        raise AssertionError(f"weights {weights.tolist()}, expected {expected}")
    if lead != BOUND:
        raise AssertionError(f"the largest lead is {lead}, expected {BOUND}")
    print(f"[rank {rank}] came to its end; largest lead: {lead}", flush=True)
    return {"solved": True, "lead": lead}
