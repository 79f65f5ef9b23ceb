"""A recurrent network is cut over the workers, and trains as the uncut one does.

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/rnn.py

Written by notebooks/A2_training_over_rpc.ipynb.
"""

import json
import logging
import os
import socket
import threading
import time
import warnings
from contextlib import contextmanager

import torch
import torch.distributed.autograd as dist_autograd
from torch import nn
from torch.distributed import rpc
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.optim import DistributedOptimizer

TOKENS, WIDTH, HIDDEN = 40, 6, 8
LENGTH, BATCH, LR = 5, 8, 0.5
MICRO_BATCHES, NAP = (4, 1, 4), 0.05  # of each step; seconds for each of BATCH
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


def pass_on(part, rref):
    """Run by the owner of `part`: fetch what the part before it made, and go on."""
    x = rref.to_here()  # notes a send there and a recv here, if it has a gradient
    with alone:  # one micro-batch after the other, as on a device
        time.sleep(NAP * x.shape[1])  # a big part would take that long
        x = part.local_value()(x)
    return x[0] if isinstance(x, tuple) else x


class CutRNN:
    """Three RRefs to modules that other workers own."""

    def __init__(self, world_size):
        owners = zip(PARTS, (1, 0, world_size - 1), strict=True)
        self.seconds = []  # of each forward pass
        self.parts = {p: rpc.remote(f"worker{o}", build, args=(p,)) for p, o in owners}

    def forward(self, tokens, micro_batches):
        """Send every micro-batch through all parts, and wait for none on its way."""
        start, scores = time.monotonic(), []
        for micro_batch in tokens.chunk(micro_batches, 1):
            rref = rpc.RRef(micro_batch)  # (LENGTH, BATCH // micro_batches)
            for part in self.parts.values():
                rref = rpc.remote(part.owner(), pass_on, args=(part, rref))
            scores.append(rref)
        scores = torch.cat([rref.to_here() for rref in scores], 1)
        self.seconds.append(time.monotonic() - start)
        return scores  # (LENGTH, BATCH, TOKENS)


def parameters(part):
    """Return an RRef to each parameter of `part`; only its owner can make them."""
    return [rpc.RRef(p) for p in part.local_value().parameters()]


def gradients(context):
    """Return how many gradients this worker has in the context, and in .grad."""
    held = dist_autograd.get_gradients(context)
    return len(held), sum(p.grad is not None for p in held)


class SGD(torch.optim.SGD):
    """DistributedOptimizer swaps torch's own SGD for a deprecated copy, and warns."""


def loss_of(scores, target):
    return nn.functional.cross_entropy(scores.flatten(0, 1), target.flatten())


def train_step(model, optimizer, tokens, target, micro_batches, names):
    """One step of the cut network; return, by worker, where the gradients lay."""
    with dist_autograd.context() as context:
        loss = loss_of(model.forward(tokens, micro_batches), target)
        dist_autograd.backward(context, [loss])  # on all workers; fills the context
        held = [rpc.rpc_sync(name, gradients, (context,)) for name in names]
        optimizer.step(context)  # each owner takes its own gradients from it
    return held


def main(rank, world_size):
    if rank > 0:
        return print(f"[rank {rank}] serves its part of the network", flush=True)
    model, names = CutRNN(world_size), [f"worker{r}" for r in range(world_size)]
    owned = [rpc.rpc_sync(p.owner(), parameters, (p,)) for p in model.parts.values()]
    rrefs = [rref for several in owned for rref in several]
    # It warns of each class that it does not swap, which is the point of ours.
    logging.getLogger("torch.distributed.optim.optimizer").setLevel(logging.ERROR)
    # An optimizer on each worker that owns one of them; this object only calls those.
    optimizer = DistributedOptimizer(SGD, rrefs, lr=LR)
    uncut = nn.ModuleDict({part: build(part) for part in PARTS})  # the truth
    truth = torch.optim.SGD(uncut.parameters(), lr=LR)
    held = []
    for micro_batches in MICRO_BATCHES:
        tokens, target = torch.randint(TOKENS, (2, LENGTH, BATCH))
        given = tokens, target, micro_batches
        held.append(train_step(model, optimizer, *given, names))

        truth.zero_grad()
        hidden, _ = uncut["lstm"](uncut["encoder"](tokens))
        loss_of(uncut["decoder"](hidden), target).backward()
        truth.step()
        for rref, expected in zip(rrefs, uncut.parameters(), strict=True):
            torch.testing.assert_close(rref.to_here(), expected, msg="weights differ")
        said = f"cut into {micro_batches}: {model.seconds[-1]:.1f} s, weights as uncut"
        print(f"[rank 0] {said}", flush=True)
    there, grad = zip(*held[0], strict=True)  # no optimizer had touched a .grad yet
    print(f"[rank 0] in the context: {there}; in .grad: {grad}", flush=True)
    assert model.seconds[2] < 0.9 * model.seconds[1], model.seconds
    return {"in_context": there, "in_grad": grad, "seconds": model.seconds[1:]}


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
