"""1F1B: each stage turns to backward as early as it can, and so keeps less.

    torchrun --standalone --nproc-per-node 2 ddp_lab/model/one_f_one_b.py

The bubble stays, since every stage sleeps as long as in model/pipeline.py:

    [rank 0] as unsplit, in the order F0 F1 B0 ...

Written by notebooks/14_model_parallel.ipynb.
"""

import copy
import gc
import json
import os
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record

WIDTH, BATCH = 16, 24
MICRO_BATCHES = [1, 2, 4, 8]  # into so many a batch is cut
FORWARD, BACKWARD = 0.2, 0.4  # seconds that a stage takes for the whole batch


def schedule(rank, world_size, m):
    """1F1B: some forwards to fill the stages behind, then one backward after each."""
    ahead = min(world_size - 1 - rank, m)
    steps = [("F", i) for i in range(ahead)]
    for i in range(m):
        steps += [("F", ahead + i)] if ahead + i < m else []
        steps += [("B", i)]
    return steps


def train_step(stage, steps, batch, target, m):
    """Go through a batch in m pieces; return the most bytes that the stage kept."""
    stage.layer.zero_grad()  # once: the micro-batches add up in .grad
    batches, targets = batch.chunk(m), target.chunk(m)
    kept, most, stage.diary = {}, 0, []
    for way, i in steps:
        if way == "F":
            kept[i] = stage.forward(i, batches[i])  # what went in, and what came out
            most = max(most, sum(t.nbytes for pair in kept.values() for t in pair))
        else:
            stage.backward(i, *kept.pop(i), targets[i])
    for work, _ in stage.sends:
        work.wait()
    stage.sends.clear()
    return most


class Stage:
    def __init__(self, layer, rank, world_size):
        self.layer, self.diary = layer, []  # [name, start, end] of all that it did
        self.left = rank - 1 if rank > 0 else None
        self.right = rank + 1 if rank < world_size - 1 else None
        self.sends = []  # on their way: the work, and the tensor that it still reads

    def forward(self, i, x):
        if self.left is not None:
            x = self.receive(x, self.left).requires_grad_()
        start = time.monotonic()  # on Linux, one clock for all processes of a machine
        out = self.layer(x)  # (BATCH / m, WIDTH)
        self.rest(f"F{i}", start, FORWARD * len(x) / BATCH)
        if self.right is not None:
            self.send(out.detach(), self.right)
        return x, out

    def backward(self, i, x, out, target):
        if self.right is None:
            # A mean of fewer rows: without the factor, m of them sum to m times it.
            out = F.mse_loss(out, target) * len(x) / BATCH
        grad = self.receive(out, self.right) if self.right is not None else None
        start = time.monotonic()
        out.backward(grad)
        self.rest(f"B{i}", start, BACKWARD * len(x) / BATCH)
        if self.left is not None:
            self.send(x.grad, self.left)

    def rest(self, name, start, seconds):
        time.sleep(seconds)
        self.diary.append([name, start, time.monotonic()])

    def receive(self, like, src):
        recv_buf = torch.empty_like(like, device="cpu")  # gloo receives only there
        dist.recv(recv_buf, src)  # holds what src has sent
        return recv_buf.to(like.device)

    def send(self, tensor, dst):
        # Go on at once: dst may just be sending to this rank, and two would wait.
        tensor = tensor.cpu()
        self.sends.append((dist.isend(tensor, dst), tensor))


def main(rank, world_size, device):
    torch.manual_seed(0)  # the same layers and data on every rank
    layers = [nn.Linear(WIDTH, WIDTH) for _ in range(world_size)]
    whole = nn.Sequential(*layers).to(device)
    stage = Stage(copy.deepcopy(whole[rank]), rank, world_size)
    batch, target = torch.randn(2, BATCH, WIDTH).to(device)
    F.mse_loss(whole(batch), target).backward()  # also loads modules, before the timing
    expected = list(whole[rank].parameters())  # their gradients are the truth

    facts = {"seconds": [], "kept": [], "timelines": []}
    for m in MICRO_BATCHES:
        most = train_step(stage, schedule(rank, world_size, m), batch, target, m)
        for p, e in zip(stage.layer.parameters(), expected, strict=True):
            torch.testing.assert_close(p.grad, e.grad, msg="gradient differs")
        rows = min(m, world_size - rank) * BATCH // m  # that are kept
        assert most == rows * 8 * WIDTH, f"{most} bytes, not of {rows} rows"
        seconds = stage.diary[-1][2] - stage.diary[0][1]
        bubble, theory = 1 - 0.6 / seconds, (world_size - 1) / (m + world_size - 1)
        # No sleep is too short: rank 0 cannot have idled less.
        assert rank > 0 or bubble > theory - 0.02, f"{bubble:.3f}, {theory}"

        order = " ".join(name for name, *_ in stage.diary)
        print(f"[rank {rank}] as unsplit, in the order {order}", flush=True)
        facts["seconds"].append(seconds)
        facts["kept"].append(most)
        facts["timelines"].append(stage.diary)
    first, *_, last = facts["seconds"]
    assert rank > 0 or last < 0.9 * first, f"no faster: {facts['seconds']}"
    return facts


# --- the same in every program: join the group, run main, leave whatever happens ---


@contextmanager
def process_group():
    """A GPU per rank over NCCL; else gloo, on a shared GPU or the CPU."""
    device, backend, well = torch.device("cpu"), "gloo", False
    if count := torch.accelerator.device_count():
        kind = torch.accelerator.current_accelerator().type
        index = int(os.environ["LOCAL_RANK"]) % count
        own = dist.get_default_backend_for_device(kind)  # cuda: nccl, xpu: xccl
        if count == 1 and "TORCHELASTIC_RUN_ID" not in os.environ:
            count = int(os.environ.get("SLURM_GPUS_ON_NODE", 1))  # each sees its own
        if count >= int(os.environ["LOCAL_WORLD_SIZE"]) and own != "gloo":
            backend = f"cpu:gloo,{kind}:{own}"
        if kind == "cuda" or backend != "gloo":  # gloo carries CPU and CUDA tensors
            device = torch.device(kind, index)
            torch.accelerator.set_device_index(index)
    os.environ["TORCH_DIST_INIT_BARRIER"] = "1"  # nobody leaves before all have joined
    dist.init_process_group(backend, device_id=device if "nccl" in backend else None)
    del os.environ["TORCH_DIST_INIT_BARRIER"]  # new_group need not wait for all
    try:
        yield dist.get_rank(), dist.get_world_size(), device
        well = True
    finally:
        if well or backend == "gloo":  # over NCCL a leaving rank could hang
            dist.destroy_process_group()
            gc.collect()  # a leftover gloo object could abort the process at exit


@record
def run():
    with process_group() as (rank, world_size, device):
        if facts := main(rank, world_size, device):
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    run()
