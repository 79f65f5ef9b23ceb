"""A recurrent network is cut over the workers, and trains as the uncut one does.

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/rnn.py

Worker 0 has the LSTM and the data; the encoder and the decoder live on other workers:

    [rank 0] step 1: loss ..., weights as uncut
    [rank 0] gradients in the context, by rank: ...; in .grad: ...

Written by notebooks/13_training_over_rpc.ipynb.
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

TOKENS, WIDTH, HIDDEN = 40, 6, 8
LENGTH, BATCH, STEPS, LR = 5, 4, 3, 0.5
PARTS = {  # each seeded by its place, so that every worker builds the same weights
    "encoder": lambda: nn.Embedding(TOKENS, WIDTH),
    "lstm": lambda: nn.LSTM(WIDTH, HIDDEN),
    "decoder": lambda: nn.Linear(HIDDEN, TOKENS),
}
building = threading.Lock()


def build(part):
    with building:  # calls come on many threads, and there is one random state
        torch.manual_seed(list(PARTS).index(part))
        return PARTS[part]()


def parameters(part):
    """Return an RRef to each parameter of `part`; only its owner can make them."""
    return [rpc.RRef(p) for p in part.local_value().parameters()]


def gradients(context):
    """Return how many gradients this worker has in the context, and in .grad."""
    held = dist_autograd.get_gradients(context)
    return len(held), sum(p.grad is not None for p in held)


class SGD(torch.optim.SGD):
    """DistributedOptimizer swaps torch's own SGD for TorchScript, which is going."""


# It warns of each class that it does not swap, which is the point of ours.
logging.getLogger("torch.distributed.optim.optimizer").setLevel(logging.ERROR)


class CutRNN:
    """Three RRefs to modules: who holds an RRef need not hold the module."""

    def __init__(self, world_size):
        owners = {"encoder": 1, "lstm": 0, "decoder": world_size - 1}
        self.parts = {
            part: rpc.remote(f"worker{owner}", build, args=(part,))
            for part, owner in owners.items()
        }

    def forward(self, tokens):
        # Each call notes a send at one end and a recv at the other: backward's road.
        x = self.parts["encoder"].rpc_sync().forward(tokens)  # (LENGTH, BATCH, WIDTH)
        x, _ = self.parts["lstm"].rpc_sync().forward(x)  # (LENGTH, BATCH, HIDDEN)
        return self.parts["decoder"].rpc_sync().forward(x)  # (LENGTH, BATCH, TOKENS)

    def parameter_rrefs(self):
        calls = [rpc.rpc_sync(p.owner(), parameters, (p,)) for p in self.parts.values()]
        return [rref for rrefs in calls for rref in rrefs]


def loss_of(scores, target):
    return nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten())


def train(model, uncut, world_size):
    """Take three steps with both; return, by worker, where the gradients lay."""
    rrefs = model.parameter_rrefs()
    # An optimizer on each worker that owns one of them; this object only calls those.
    optimizer = DistributedOptimizer(SGD, rrefs, lr=LR)
    expected = torch.optim.SGD(uncut.parameters(), lr=LR)
    held, names = [], [f"worker{rank}" for rank in range(world_size)]
    for step in range(1, STEPS + 1):
        tokens, target = torch.randint(TOKENS, (2, LENGTH, BATCH))
        with dist_autograd.context() as context:
            loss = loss_of(model.forward(tokens), target)
            dist_autograd.backward(context, [loss])  # on all workers; fills the context
            held += [rpc.rpc_sync(name, gradients, (context,)) for name in names]
            optimizer.step(context)  # each owner takes its own gradients from it

        expected.zero_grad()
        hidden, _ = uncut["lstm"](uncut["encoder"](tokens))
        loss_of(uncut["decoder"](hidden), target).backward()
        expected.step()
        for rref, e in zip(rrefs, uncut.parameters(), strict=True):
            torch.testing.assert_close(rref.to_here(), e, msg="weights differ")
        print(f"[rank 0] step {step}: loss {loss:.3f}, weights as uncut", flush=True)
    return held[:world_size]  # of step 1: no optimizer had touched a .grad yet


@record
def main():
    with workers() as (rank, world_size):
        if rank > 0:
            print(f"[rank {rank}] serves its part of the network", flush=True)
            return  # the block waits at its end until nobody calls any more
        uncut = nn.ModuleDict({part: build(part) for part in PARTS})
        held = train(CutRNN(world_size), uncut, world_size)
        there, grad = (list(n) for n in zip(*held, strict=True))
        text = f"in the context, by rank: {there}; in .grad: {grad}"
        print(f"[rank 0] gradients {text}", flush=True)
        print(json.dumps({"in_context": there, "in_grad": grad}), flush=True)
        assert sum(there) == len(list(uncut.parameters())) and not any(grad), text


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
