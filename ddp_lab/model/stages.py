"""A network cut into stages: every rank holds one layer, and no others.

    torchrun --standalone --nproc-per-node 2 ddp_lab/model/stages.py

Written by notebooks/14_model_parallel.ipynb.
"""

import copy
import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record

WIDTH, BATCH = 16, 24

STEPS = 3


class Stage:
    """The layer of one rank, and its links to the neighbors."""

    def __init__(self, layer, rank, world_size):
        self.layer, self.sent = layer, 0
        self.left = rank - 1 if rank > 0 else None
        self.right = rank + 1 if rank < world_size - 1 else None

    def forward(self, x):
        if self.left is not None:
            # Autograd does not look into other processes: here its graph begins anew.
            x = self.receive(x, self.left).requires_grad_()
        out = self.layer(x)  # (BATCH, WIDTH)
        if self.right is not None:
            self.send(out.detach(), self.right)
        return x, out

    def backward(self, x, out, target):
        if self.right is None:
            F.mse_loss(out, target).backward()  # only the last stage sees the loss
        else:
            out.backward(self.receive(out, self.right))
        if self.left is not None:
            self.send(x.grad, self.left)

    def receive(self, like, src):
        recv_buf = torch.empty_like(like, device="cpu")  # gloo receives only there
        dist.recv(recv_buf, src)  # holds what src has sent
        return recv_buf.to(like.device)

    def send(self, tensor, dst):
        dist.send(tensor.cpu(), dst)  # dst now holds it
        self.sent += 1


def main(rank, world_size, device):
    torch.manual_seed(0)  # the same layers and data on every rank
    layers = [nn.Linear(WIDTH, WIDTH) for _ in range(world_size)]
    whole = nn.Sequential(*layers).to(device)
    stage = Stage(copy.deepcopy(whole[rank]), rank, world_size)
    optimizer = torch.optim.SGD(stage.layer.parameters(), lr=0.1)
    expected_optimizer = torch.optim.SGD(whole.parameters(), lr=0.1)
    held = sum(p.numel() for p in stage.layer.parameters())
    print(f"[rank {rank}] layer {rank} of {world_size}: {held} parameters", flush=True)

    for _ in range(STEPS):
        batch, target = torch.randn(2, BATCH, WIDTH).to(device)
        optimizer.zero_grad()
        stage.backward(*stage.forward(batch), target)
        expected_optimizer.zero_grad()
        F.mse_loss(whole(batch), target).backward()
        expected = list(whole[rank].parameters())
        for p, e in zip(stage.layer.parameters(), expected, strict=True):
            torch.testing.assert_close(p.grad, e.grad, msg="gradient differs")
        # Each rank steps with its own layer; there is nothing to average.
        optimizer.step()
        expected_optimizer.step()
    print(f"[rank {rank}] as unsplit in each of {STEPS} steps", flush=True)
    return {"held": held, "sent": stage.sent}


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
