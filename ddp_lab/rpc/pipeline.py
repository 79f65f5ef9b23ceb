"""A pipeline that one worker drives by remote calls, with the stages of lesson 6.

    torchrun --standalone --nproc-per-node 2 ddp_lab/rpc/pipeline.py

Worker 0 has the first stage and makes the calls; nobody says in which order the
micro-batches come back:

    [rank 0] m = 4: as unsplit; micro-batches kept, by stage: ...

Written by notebooks/13_training_over_rpc.ipynb.
"""

import itertools
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

WIDTH, BATCH = 16, 24
MICRO_BATCHES = [4, 8]  # into so many a batch is cut
FORWARD, BACKWARD = 0.2, 0.4  # seconds that a stage takes for the whole batch


class Stage:
    """The layer of one worker, and its diary."""

    def __init__(self, rank, world_size):
        self.layer = layers(world_size)[rank]
        self.lock = threading.Lock()  # calls come on many threads; it has one "GPU"
        self.diary = []  # [name, start, end] of all that the layer did
        self.kept, self.most = 0, 0  # micro-batches that wait for backward

    def forward(self, x, i, m):
        """Micro-batch i of m. An RRef is fetched from the stage before, directly."""
        x = x if torch.is_tensor(x) else x.to_here()  # (BATCH / m, WIDTH)
        return Busy.apply(self.layer(x), self, i, m)

    def work(self, name, seconds, kept):
        with self.lock:
            self.kept += kept
            self.most = max(self.most, self.kept)
            start = time.monotonic()
            time.sleep(seconds)
            self.diary.append([name, start, time.monotonic()])

    def result(self, context):
        """Return gradients, diary and what was kept at most; begin anew."""
        held = dist_autograd.get_gradients(context)
        diary, most, self.diary, self.most = self.diary, self.most, [], 0
        for (_, _, end), (name, start, _) in itertools.pairwise(diary):
            assert end <= start, f"{name} began before the one before it had ended"
        return [held[p] for p in self.layer.parameters()], diary, most


class Busy(torch.autograd.Function):
    """Hand on what comes, after as long as a big stage would take: on both ways."""

    @staticmethod
    def forward(ctx, x, stage, i, m):
        ctx.piece = stage, i, m
        stage.work(f"F{i}", FORWARD / m, kept=1)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        stage, i, m = ctx.piece
        stage.work(f"B{i}", BACKWARD / m, kept=-1)
        return grad, None, None, None


def layers(world_size):
    torch.manual_seed(0)  # the same on every worker
    return [nn.Linear(WIDTH, WIDTH) for _ in range(world_size)]


def on_stage(stage, method, *arguments):
    """What is called where the stage lives: an RRef's own rpc_async would not do."""
    return getattr(stage.local_value(), method)(*arguments)


def train_step(first, others, batch, target, m):
    """Send m micro-batches on their way; when all are back, backward finds its own."""
    with dist_autograd.context() as context:
        outs = []
        for i, x in enumerate(batch.chunk(m)):
            x = first.forward(x, i, m)
            for stage in others[:-1]:  # an RRef, at once: the result is still to come
                x = rpc.remote(stage.owner(), on_stage, (stage, "forward", x, i, m))
            last = others[-1]
            call = (last, "forward", x, i, m)
            outs.append(rpc.rpc_async(last.owner(), on_stage, call))
        out = torch.cat(torch.futures.wait_all(outs))  # (BATCH, WIDTH), on worker 0
        dist_autograd.backward(context, [nn.functional.mse_loss(out, target)])
        results = [
            rpc.rpc_sync(stage.owner(), on_stage, (stage, "result", context))
            for stage in others
        ]
        return [first.result(context), *results]


@record
def main():
    with workers() as (rank, world_size):
        if rank > 0:
            print(f"[rank {rank}] has a stage, and does what it is told", flush=True)
            return
        first = Stage(0, world_size)
        others = [
            rpc.remote(f"worker{r}", Stage, (r, world_size))
            for r in range(1, world_size)
        ]
        whole = nn.Sequential(*layers(world_size))
        batch, target = torch.randn(2, BATCH, WIDTH)
        nn.functional.mse_loss(whole(batch), target).backward()

        kept, timelines = [], []
        for m in MICRO_BATCHES:
            results = train_step(first, others, batch, target, m)
            for (gradients, *_), layer in zip(results, whole, strict=True):
                expected = [p.grad for p in layer.parameters()]
                torch.testing.assert_close(gradients, expected, msg="gradient differs")
            kept.append([most for *_, most in results])
            timelines.append([diary for _, diary, _ in results])
            text = f"as unsplit; micro-batches kept, by stage: {kept[-1]}"
            print(f"[rank 0] m = {m}: {text}", flush=True)
        print(json.dumps({"kept": kept, "timelines": timelines}), flush=True)
        assert kept[-1] == [MICRO_BATCHES[-1]] * world_size, kept


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
