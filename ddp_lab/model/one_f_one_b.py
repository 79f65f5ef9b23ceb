"""1F1B: each stage turns to backward as early as it can, and so keeps less.

    torchrun --standalone --nproc-per-node 2 ddp_lab/model/one_f_one_b.py

The bubble stays, since every stage sleeps as long as in model/pipeline.py:

    [rank 0] as unsplit, in the order F0 F1 B0 ...

Written by notebooks/06_model_parallel.ipynb.
"""

import copy
import gc
import json
import os
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record

WIDTH, BATCH = 16, 24
MICRO_BATCHES = [1, 2, 4, 8]  # into so many a batch is cut
FORWARD, BACKWARD = 0.2, 0.4  # seconds that a stage takes for the whole batch


class Stage:
    """The layer of one rank, its links to the neighbours, and its diary."""

    def __init__(self, layer, rank, world_size, device):
        self.layer, self.device = layer, device
        self.left = rank - 1 if rank > 0 else None
        self.right = rank + 1 if rank < world_size - 1 else None
        self.sends = []  # on their way: the work, and the tensor that it still reads
        self.kept = {}  # for backward: what went into the layer, and what came out
        self.most = 0  # bytes that were ever kept at one time
        self.diary = []  # [name, start, end] of all that the layer did

    def forward(self, i, x, m):
        """Micro-batch i of m: from the left, through the layer, to the right."""
        if self.left is not None:
            recv_buf = torch.empty(BATCH // m, WIDTH)  # in host memory: any backend can
            dist.recv(recv_buf, src=self.left)  # holds micro-batch i's activation
            x = recv_buf.to(self.device).requires_grad_()

        start = time.monotonic()  # on Linux, one clock for all processes of a machine
        out = self.layer(x)  # (BATCH / m, WIDTH)
        time.sleep(FORWARD / m)
        self.diary.append([f"F{i}", start, time.monotonic()])
        self.kept[i] = x, out  # for this micro-batch's backward, much later
        self.most = max(self.most, len(self.kept) * (x.nbytes + out.nbytes))

        if self.right is not None:
            self.send(out.detach().cpu(), self.right)

    def backward(self, i, target, m):
        """The same for its gradient: from the right, through the layer, to the left."""
        x, out = self.kept.pop(i)
        if self.right is None:
            # A mean over BATCH / m rows: without the / m, m of them sum to m times it.
            out = nn.functional.mse_loss(out, target) / m
            grad = torch.ones(())
        else:
            grad = torch.empty(BATCH // m, WIDTH)
            dist.recv(grad, src=self.right)  # holds d loss / d out of micro-batch i

        start = time.monotonic()
        out.backward(grad.to(self.device))
        time.sleep(BACKWARD / m)
        self.diary.append([f"B{i}", start, time.monotonic()])

        if self.left is not None:
            self.send(x.grad.cpu(), self.left)

    def send(self, tensor, dst):
        """Go on at once: dst may just be sending to this rank, and two would wait."""
        self.sends.append((dist.isend(tensor, dst), tensor))


def schedule(rank, world_size, m):
    """1F1B: some forwards to fill the stages behind, then one backward after each."""
    ahead = min(world_size - 1 - rank, m)
    steps = [("F", i) for i in range(ahead)]
    for i in range(m):
        steps += [("F", ahead + i)] if ahead + i < m else []
        steps += [("B", i)]
    return steps


def train_step(stage, steps, batch, target, m):
    """Go through a batch in m pieces, in the order of `steps`."""
    stage.layer.zero_grad()  # once: the micro-batches add up in .grad
    stage.diary, stage.most = [], 0
    pieces = {"F": batch.chunk(m), "B": target.chunk(m)}
    for way, i in steps:
        do = stage.forward if way == "F" else stage.backward
        do(i, pieces[way][i], m)
    for work, _ in stage.sends:
        work.wait()
    stage.sends.clear()


def check(stage, expected, rows, theory):
    """Compare with the unsplit network and with theory; return this rank's seconds."""
    for p, e in zip(stage.layer.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, e.grad, msg="gradient differs")
    assert stage.most == rows * 8 * WIDTH, f"{stage.most} bytes, not of {rows} rows"
    seconds = stage.diary[-1][2] - stage.diary[0][1]
    bubble = 1 - (FORWARD + BACKWARD) / seconds
    # Rank 0 is the first to begin and the last to end. No sleep is too short.
    assert stage.left is not None or bubble > theory - 0.02, f"{bubble:.3f}, {theory}"
    return seconds


@record
def main():
    with process_group() as (rank, world_size, device):
        torch.manual_seed(0)  # the same layers and data on every rank
        layers = [nn.Linear(WIDTH, WIDTH) for _ in range(world_size)]
        whole = nn.Sequential(*layers).to(device)
        stage = Stage(copy.deepcopy(whole[rank]), rank, world_size, device)
        batch, target = torch.randn(2, BATCH, WIDTH).to(device)
        loss = nn.functional.mse_loss(whole(batch), target)
        loss.backward(torch.ones_like(loss))  # loads modules: better now than timed
        expected = list(whole[rank].parameters())  # their gradients are the truth

        seconds, kept, timelines = [], [], []
        for m in MICRO_BATCHES:
            train_step(stage, schedule(rank, world_size, m), batch, target, m)
            theory = (world_size - 1) / (m + world_size - 1)
            rows = min(m, world_size - rank) * BATCH // m  # that are kept
            seconds.append(check(stage, expected, rows, theory))
            kept.append(stage.most)
            timelines.append(stage.diary)
            order = " ".join(name for name, *_ in stage.diary)
            print(f"[rank {rank}] as unsplit, in the order {order}", flush=True)
        assert rank > 0 or seconds[-1] < 0.9 * seconds[0], f"no faster: {seconds}"
        facts = {"seconds": seconds, "kept": kept, "timelines": timelines}
        print(json.dumps(facts), flush=True)


# --- the same in every program: join the group, and leave it whatever happens ---


@contextmanager
def process_group():
    """A GPU per rank over NCCL; else gloo, on a shared GPU or the CPU."""
    device, backend = torch.device("cpu"), "gloo"
    if count := torch.cuda.device_count():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % count)
        torch.cuda.set_device(device)
        if count >= int(os.environ["LOCAL_WORLD_SIZE"]):
            backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, device_id=device if "nccl" in backend else None)
    try:
        yield dist.get_rank(), dist.get_world_size(), device
    finally:
        dist.destroy_process_group()
        gc.collect()  # a leftover gloo object could abort the process at exit


if __name__ == "__main__":
    main()
