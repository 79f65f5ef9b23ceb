"""A parameter server, synchronous and asynchronous: how old is each gradient?

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/parameter_server.py

Rank 0 keeps the weights; every rank is a trainer, the last one a slow one:

    [rank 0] synchronous, 0.1: falls; as in one process
    [rank 0] asynchronous, 0.1: ...

Written by notebooks/13_training_over_rpc.ipynb.
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
from torch.futures import Future

WIDTH, ROWS = 4, 8  # ROWS: of each trainer
GRADIENTS = 60  # that the server takes before it says stop
LEARNING_RATES = 0.1, 1.5
FAST, SLOW = 0.02, 0.06  # seconds that a gradient takes
TRUTH = torch.ones(WIDTH)  # the weights behind the data


class Server:
    """The weights, and a log from which one process can repeat what has happened."""

    def __init__(self, enough, lr):
        self.enough, self.lr = enough, lr  # how many gradients make an update
        self.weights, self.version = torch.zeros(WIDTH), 0
        self.waiting = []  # (trainer, version, gradient, future) of this update
        self.log = []  # of each update: (trainer, the version its gradient is of)
        self.losses, self.seconds = [loss(self.weights)], [time.monotonic()]
        self.lock = threading.Lock()  # calls arrive on several threads

    def update(self):
        """Step along the mean of those that wait; tell them all the new weights."""
        self.waiting.sort(key=lambda entry: entry[0])  # sums depend on the order
        gradients = [gradient for _, _, gradient, _ in self.waiting]
        self.weights = self.weights - self.lr * torch.stack(gradients).mean(0)
        self.version += 1
        self.log.append([(trainer, version) for trainer, version, *_ in self.waiting])
        self.losses.append(loss(self.weights))
        self.seconds.append(time.monotonic())
        waiting, self.waiting = self.waiting, []
        for *_, answer in waiting:
            answer.set_result((self.version, self.weights))

    @staticmethod
    @rpc.functions.async_execution  # the caller is answered when the future is set
    def push(rref, trainer, version, gradient):
        server, answer = rref.local_value(), Future()
        with server.lock:
            if len(server.log) * server.enough >= GRADIENTS:
                answer.set_result((None, None))  # stop
            else:
                server.waiting.append((trainer, version, gradient, answer))
            if len(server.waiting) == server.enough:
                server.update()
        return answer


def share(trainer):
    """The rows of one trainer: orthonormal columns, scaled to curvatures 0.3 to 1."""
    generator = torch.Generator().manual_seed(trainer)
    q, _ = torch.linalg.qr(torch.randn(ROWS, WIDTH, generator=generator))
    return q * torch.linspace(0.3, 1, WIDTH).sqrt()  # (ROWS, WIDTH)


def gradient_of(trainer, weights):
    x = share(trainer)
    return x.T @ (x @ (weights - TRUTH))


def loss(weights):
    """All trainers' rows have the same curvatures, so those of trainer 0 will do."""
    return (share(0) @ (weights - TRUTH)).square().sum().item() / 2


def train(rref, trainer, seconds):
    """Compute, push, get new weights: until the server says that it has enough."""
    version, weights = 0, torch.zeros(WIDTH)
    while version is not None:
        gradient = gradient_of(trainer, weights)
        time.sleep(seconds)  # a big model would take that long
        arguments = (rref, trainer, version, gradient)
        version, weights = rpc.rpc_sync(rref.owner(), Server.push, arguments)


def replay(server):
    """Repeat the training in one process, by nothing but the log."""
    history = [torch.zeros(WIDTH)]
    for entries in server.log:
        gradients = [gradient_of(trainer, history[v]) for trainer, v in entries]
        history.append(history[-1] - server.lr * torch.stack(gradients).mean(0))
    torch.testing.assert_close(server.weights, history[-1], msg="the replay differs")


def run(world_size, mode, lr):
    """Train; return the losses, and by trainer how stale each gradient was."""
    server = Server(world_size if mode == "synchronous" else 1, lr)
    rref, calls = rpc.RRef(server), []
    for rank in range(world_size):
        arguments = rref, rank, SLOW if rank == world_size - 1 else FAST
        calls.append(rpc.rpc_async(f"worker{rank}", train, arguments))
    torch.futures.wait_all(calls)
    replay(server)

    stale = [[] for _ in range(world_size)]
    for n, entries in enumerate(server.log):  # update n turns version n into n + 1
        for trainer, version in entries:
            stale[trainer].append(n - version)
    assert mode == "asynchronous" or not any(map(sum, stale)), stale
    seconds = [round(second - server.seconds[0], 3) for second in server.seconds]
    return {"losses": server.losses, "seconds": seconds, "stale": stale}


@record
def main():
    with workers() as (rank, world_size):
        if rank > 0:
            print(f"[rank {rank}] computes gradients when it is asked to", flush=True)
            return
        facts = {}
        for lr in LEARNING_RATES:
            for mode in ("synchronous", "asynchronous"):
                facts[f"{mode} {lr}"] = ran = run(world_size, mode, lr)
                ways = "falls" if max(ran["losses"]) == ran["losses"][0] else "rises"
                expected = "falls" if "async" not in mode or lr < 1 else "rises"
                print(f"[rank 0] {mode}, {lr}: {ways}; as in one process", flush=True)
                if ways != expected:
                    raise AssertionError(f"the loss {ways}, expected: {expected}")
        print(json.dumps(facts), flush=True)


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
