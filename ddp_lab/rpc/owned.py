"""A server owns a whole network, and trainers train it by distributed autograd.

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/owned.py

Written by notebooks/A2_training_over_rpc.ipynb.
"""

import json
import logging
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
from torch.distributed.optim import DistributedOptimizer

TOKENS, WIDTH, HIDDEN = 8, 16, 32
LENGTH, BATCH, STEPS, LR = 5, 8, 12, 4.0
PARTS = {  # each seeded by its place, so that every worker builds the same weights
    "encoder": lambda: nn.Embedding(TOKENS, WIDTH),
    "lstm": lambda: nn.LSTM(WIDTH, HIDDEN),
    "decoder": lambda: nn.Linear(HIDDEN, TOKENS),
}
alone = threading.Lock()  # calls come on many threads


def build(part):
    with alone:  # there is one random state
        torch.manual_seed(list(PARTS).index(part))
        return PARTS[part]()


class SGD(torch.optim.SGD):
    """DistributedOptimizer swaps torch's own SGD for a deprecated copy, and warns."""


def loss_of(scores, target):
    return nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten())


class Server:
    """Owns the network; trainers meet here."""

    def __init__(self, network, trainers):
        self.network, self.together = network, threading.Barrier(trainers)

    def forward(self, tokens):
        hidden, _ = self.network["lstm"](self.network["encoder"](tokens))
        return self.network["decoder"](hidden)  # (LENGTH, BATCH, TOKENS)

    def parameters(self):
        return [rpc.RRef(p) for p in self.network.parameters()]

    def meet(self):
        self.together.wait()


def batch(step, trainer):
    """Tokens, and what the network must say to each: the number after the next."""
    generator = torch.Generator().manual_seed(100 * step + trainer)
    tokens = torch.randint(TOKENS, (LENGTH, BATCH), generator=generator)
    return tokens, (tokens + 2) % TOKENS


def train(rref, trainer, trainers):
    """Run by each trainer: all at the same time train the one network."""
    server, losses = rref.rpc_sync(), []
    optimizer = DistributedOptimizer(SGD, server.parameters(), lr=LR / trainers)
    for step in range(STEPS):
        tokens, target = batch(step, trainer)
        with dist_autograd.context() as context:
            loss = loss_of(server.forward(tokens), target)
            dist_autograd.backward(context, [loss])
            server.meet()  # all gradients are there
            optimizer.step(context)
        server.meet()  # all steps are made
        losses.append(loss.item())
    return losses


def one_process(trainers):
    """The truth: one process with the batches of all trainers; return its weights."""
    network = nn.ModuleDict({part: build(part) for part in PARTS})
    optimizer = torch.optim.SGD(network.parameters(), lr=LR)
    for step in range(STEPS):
        pairs = zip(*(batch(step, trainer) for trainer in range(trainers)), strict=True)
        tokens, target = (torch.cat(each, 1) for each in pairs)
        optimizer.zero_grad()
        loss_of(Server(network, 1).forward(tokens), target).backward()
        optimizer.step()
    return list(network.parameters())


def main(rank, world_size):
    # DistributedOptimizer warns of each class that it does not swap.
    logging.getLogger("torch.distributed.optim.optimizer").setLevel(logging.ERROR)
    if rank > 0:
        return print(f"[rank {rank}] trains when it is asked to", flush=True)
    trainers = world_size - 1
    network = nn.ModuleDict({part: build(part) for part in PARTS})
    rref = rpc.RRef(Server(network, trainers))
    given = [(rref, n, trainers) for n in range(trainers)]
    calls = [rpc.rpc_async(f"worker{1 + each[1]}", train, each) for each in given]
    losses = torch.tensor(torch.futures.wait_all(calls)).mean(0).tolist()
    found, expected = list(network.parameters()), one_process(trainers)
    torch.testing.assert_close(found, expected, msg="weights differ")
    print(f"[rank 0] loss {losses[0]:.2f}, then {losses[-1]:.2f}", flush=True)
    assert losses[-1] < losses[0] / 5, losses
    return {"losses": losses, "numbers": sum(p.numel() for p in found)}


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
