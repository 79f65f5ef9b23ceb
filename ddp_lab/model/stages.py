"""A network cut into stages: every rank holds some of its layers, and no others.

    torchrun --standalone --nproc-per-node 2 ddp_lab/model/stages.py

Activations travel to the right and gradients to the left, by send and recv:

    [rank 0] layers 0 to 3 of 8: 1088 parameters
    [rank 0] as unsplit in each of 3 steps

Written by notebooks/06_model_parallel.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record

LAYERS, WIDTH, BATCH, STEPS = 8, 16, 24, 3


class Stage:
    """The layers of one rank, and its links to the neighbours."""

    def __init__(self, layers, rank, world_size, device):
        self.layers, self.device = layers.to(device), device
        self.left = rank - 1 if rank > 0 else None
        self.right = rank + 1 if rank < world_size - 1 else None
        self.sent = 0
        # gloo's send and recv work only on host memory, even where there is a GPU.
        self.link = torch.device("cpu") if dist.get_backend() == "gloo" else device

    def forward(self, x):
        """Take the activation from the left, pass the stage's own to the right."""
        if self.left is not None:
            recv_buf = torch.empty(BATCH, WIDTH, device=self.link)
            dist.recv(recv_buf, src=self.left)  # holds what the left stages made of x
            # Autograd does not look into other processes: here its graph begins anew.
            x = recv_buf.to(self.device).requires_grad_()
        out = self.layers(x)  # (BATCH, WIDTH)
        if self.right is not None:
            dist.send(out.detach().to(self.link), dst=self.right)
            self.sent += 1
        return x, out

    def backward(self, x, out, target):
        """Take d loss / d out from the right, pass d loss / d x to the left."""
        if self.right is None:
            F.mse_loss(out, target).backward()  # only the last stage sees the loss
        else:
            grad = torch.empty(BATCH, WIDTH, device=self.link)
            dist.recv(grad, src=self.right)  # holds d loss / d out
            out.backward(grad.to(self.device))
        if self.left is not None:
            dist.send(x.grad.to(self.link), dst=self.left)
            self.sent += 1


def whole_network():
    """All layers, from one seed: every rank cuts its stage out of the same network."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS)]
    return nn.Sequential(*layers)


def check(stage, first, end):
    """Train beside the unsplit network, which no rank of a real run could hold."""
    expected = whole_network().to(stage.device)
    mine = list(expected[first:end].parameters())
    optimizer = torch.optim.SGD(stage.layers.parameters(), lr=0.1)
    expected_optimizer = torch.optim.SGD(expected.parameters(), lr=0.1)
    for _ in range(STEPS):
        batch, target = torch.randn(2, BATCH, WIDTH).to(stage.device)
        optimizer.zero_grad()
        stage.backward(*stage.forward(batch), target)
        expected_optimizer.zero_grad()
        F.mse_loss(expected(batch), target).backward()
        for p, e in zip(stage.layers.parameters(), mine, strict=True):
            torch.testing.assert_close(p.grad, e.grad, msg="gradient differs")
        # Each rank steps with its own layers; there is nothing to average.
        optimizer.step()
        expected_optimizer.step()


@record
def main():
    with process_group() as (rank, world_size, device):
        if world_size > LAYERS:
            raise ValueError(f"{LAYERS} layers are too few for {world_size} ranks")
        first, end = (r * LAYERS // world_size for r in (rank, rank + 1))
        stage = Stage(whole_network()[first:end], rank, world_size, device)
        held = sum(p.numel() for p in stage.layers.parameters())
        layers = f"layers {first} to {end - 1} of {LAYERS}"
        print(f"[rank {rank}] {layers}: {held} parameters", flush=True)
        check(stage, first, end)
        print(f"[rank {rank}] as unsplit in each of {STEPS} steps", flush=True)
        facts = {"layers": [first, end], "held": held, "sent": stage.sent}
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
