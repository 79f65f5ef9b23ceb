"""Gradients of remote calls lie in contexts: six ways to ask for one.

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/contexts.py

Written by notebooks/A2_training_over_rpc.ipynb.
"""

import json
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

WIDTH, OWNER = 3, "worker0"
OPTIONS = {"rpc_timeout": 3.0}  # seconds
generator = torch.manual_seed(0)  # every process builds the same layer
layer = nn.Linear(WIDTH, WIDTH, bias=False)  # rank 0's is called
held = {}  # on rank 0: gradients by context
# On rank 0: no trainer goes on before each has called.
together = threading.Barrier(int(os.environ.get("WORLD_SIZE", "2")) - 1)


def gradient(context, meet):
    """On rank 0: the gradient of its layer in this context, and how many there are."""
    found = dist_autograd.get_gradients(context).get(layer.weight)
    if meet:
        held[context] = found
        together.wait()
    return found, len(held)


def check(context, x, meet=False):
    """Compare with the truth: this process has the layer as well."""
    found, contexts = rpc.rpc_sync(OWNER, gradient, (context, meet))
    if found is None:
        return "no gradient, and no error"
    (expected,) = torch.autograd.grad(layer(x).square().sum(), layer.weight)
    torch.testing.assert_close(found, expected, msg="the gradient is not its own")
    return f"as alone, beside the gradients of {contexts} contexts" if meet else "right"


def forward(x):
    return layer(x)


def remote(x):
    return rpc.rpc_sync(OWNER, forward, (x,)).square().sum()


def side_by_side(x):
    with dist_autograd.context() as context:
        dist_autograd.backward(context, [remote(x)])
        return check(context, x, meet=True)


def without_context(x):
    remote(x).backward()
    with dist_autograd.context() as context:
        return check(context, x)


def plain_backward(x):
    with dist_autograd.context():
        remote(x).backward()  # the local engine


def one_of_two(x):
    with dist_autograd.context() as context:
        used, _ = remote(x), remote(x)
        dist_autograd.backward(context, [used])


def times_zero(x):
    with dist_autograd.context() as context:
        used, unused = remote(x), remote(x)
        dist_autograd.backward(context, [used + 0 * unused])
        return check(context, x)


def get_layer():
    time.sleep(0.5)  # questions about it are answered late
    return layer


def async_twice(x):
    """The same call twice."""
    module, said = rpc.remote(OWNER, get_layer), []
    for _ in range(2):
        with dist_autograd.context() as context:
            out = module.rpc_async().forward(x).wait()
            dist_autograd.backward(context, [out.square().sum()])
            said.append(check(context, x))
    return ", then ".join(said)


WAYS = {  # each, and what has to come of it
    side_by_side: "as alone",
    without_context: "no gradient, and no error",
    plain_backward: "INTERNAL ASSERT FAILED",
    one_of_two: "ran for more than set timeout",
    times_zero: "right",
    async_twice: "no gradient, and no error, then right",
}


def main(rank, world_size):
    if rank == 0:
        return print("[rank 0] has the layer that all train", flush=True)
    said = {}
    for way, expected in WAYS.items():
        try:
            said[way.__name__] = text = way(torch.full((2, WIDTH), float(rank)))
        except RuntimeError as error:
            said[way.__name__] = text = str(error).splitlines()[0]
        assert expected in text, f"{way.__name__}: {text}"
        print(f"[rank {rank}] {way.__name__}: {expected}", flush=True)
    return said


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
