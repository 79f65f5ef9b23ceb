"""A parameter server, synchronous and asynchronous: how old is each gradient?

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/parameter_server.py

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
from torch.distributed import rpc
from torch.distributed.elastic.multiprocessing.errors import record

WIDTH, ROWS = 4, 8  # ROWS: of each trainer
GRADIENTS = 60  # that the server takes before it says stop
FAST, SLOW = 0.02, 0.06  # seconds that a gradient takes


@rpc.functions.async_execution  # the caller is answered when the future is set
def push(rref, trainer, version, gradient):
    """Run by the server: take a gradient; answer with a version of the weights."""
    server, answer = rref.local_value(), torch.futures.Future()
    with server.lock:
        if len(server.log) * server.enough >= GRADIENTS:
            answer.set_result((None, None))  # stop
        else:
            server.waiting.append((trainer, version, gradient, answer))
        if len(server.waiting) == server.enough:
            server.update()
    return answer


def train(rref, trainer, seconds):
    """Compute, push, get new weights: until the server says that it has enough."""
    version, weights = 0, torch.zeros(WIDTH)
    while version is not None:
        gradient = gradient_of(trainer, weights)
        time.sleep(seconds)  # a big model would take that long
        given = (rref, trainer, version, gradient)
        version, weights = rpc.rpc_sync(rref.owner(), push, given)


def share(trainer):
    """The rows of one trainer: orthonormal columns, scaled to curvatures 0.3 to 1."""
    generator = torch.Generator().manual_seed(trainer)
    q, _ = torch.linalg.qr(torch.randn(ROWS, WIDTH, generator=generator))
    return q * torch.linspace(0.3, 1, WIDTH).sqrt()  # (ROWS, WIDTH)


def gradient_of(trainer, weights):
    return share(trainer).T @ (share(trainer) @ (weights - 1))  # the best is all ones


def loss(weights):
    """All trainers' rows have the same curvatures, so those of trainer 0 will do."""
    return (share(0) @ (weights - 1)).square().sum().item() / 2


class Server:
    """The weights, and a log from which one process can repeat what has happened."""

    def __init__(self, enough, lr):
        self.enough, self.lr = enough, lr  # how many gradients make an update
        self.weights, self.start = torch.zeros(WIDTH), time.monotonic()
        self.waiting = []  # (trainer, version, gradient, future) of this update
        self.log = []  # of each update: (trainer, the version its gradient is of)
        self.losses = [(0.0, loss(self.weights))]  # each with its time
        self.lock = threading.Lock()  # calls arrive on several threads

    def update(self):
        """Step along the mean of those that wait; tell them all the new weights."""
        self.waiting.sort(key=lambda entry: entry[0])  # sums depend on the order
        gradients = [gradient for _, _, gradient, _ in self.waiting]
        self.weights = self.weights - self.lr * torch.stack(gradients).mean(0)
        self.log.append([(trainer, version) for trainer, version, *_ in self.waiting])
        self.losses.append((time.monotonic() - self.start, loss(self.weights)))
        waiting, self.waiting = self.waiting, []
        for *_, answer in waiting:
            answer.set_result((len(self.log), self.weights))


def replay(server):
    """Repeat the training in one process, by nothing but the log."""
    history = [torch.zeros(WIDTH)]
    for entries in server.log:
        gradients = [gradient_of(trainer, history[v]) for trainer, v in entries]
        history.append(history[-1] - server.lr * torch.stack(gradients).mean(0))
    torch.testing.assert_close(server.weights, history[-1], msg="the replay differs")


def measure(world_size, enough, lr):
    """Train; return times and losses, and by trainer how stale each gradient was."""
    server = Server(enough, lr)
    rref, seconds = rpc.RRef(server), [FAST] * (world_size - 1) + [SLOW]
    calls = [(f"worker{r}", train, (rref, r, each)) for r, each in enumerate(seconds)]
    torch.futures.wait_all([rpc.rpc_async(*call) for call in calls])
    replay(server)
    stale = [[] for _ in range(world_size)]
    for n, entries in enumerate(server.log):  # update n turns version n into n + 1
        for trainer, version in entries:
            stale[trainer].append(n - version)
    return {"losses": server.losses, "stale": stale}


def main(rank, world_size):
    facts = {}
    for lr in (0.1, 1.5) if rank == 0 else ():
        for mode, enough in {"synchronous": world_size, "asynchronous": 1}.items():
            facts[f"{mode} {lr}"] = ran = measure(world_size, enough, lr)
            losses = [loss for _, loss in ran["losses"]]
            falls = max(losses) == losses[0]
            print(f"[rank 0] {mode}, {lr}: the loss falls: {falls}", flush=True)
            assert falls == (enough > 1 or lr < 1), losses
            assert enough == 1 or not any(map(sum, ran["stale"])), ran["stale"]
    print(f"[rank {rank}] trains when it is called", flush=True)
    return facts


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
