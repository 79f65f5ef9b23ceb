"""Backward is two products: a pipeline that makes them apart, equal to the uncut net.

    torchrun --standalone --nproc-per-node 2 ddp_lab/pipeline/train.py

    [rank 0] W at once: as uncut, ... inputs kept

Written by notebooks/19_pipelines.ipynb.
"""

import gc
import json
import os
import weakref
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.elastic.multiprocessing.errors import record

ROWS, WIDTH = 4, 16  # of a micro-batch


class Layer:
    """relu(x w), with a backward in two halves."""

    def __init__(self, weight):
        self.weight, self.grad, self.kept = weight, torch.zeros_like(weight), {}

    def forward(self, i, x):
        self.kept[i] = x, torch.relu(x @ self.weight)  # (ROWS, WIDTH), twice
        return self.kept[i][1]

    def input_grad(self, i, grad):
        """Return d loss / d x; the stage before this one waits for it."""
        x, out = self.kept[i]
        grad = grad * (out > 0)
        self.kept[i] = x, grad  # all that the weight still needs
        return grad @ self.weight.T

    def weight_grad(self, i):
        """Add up d loss / d w; no stage waits for it."""
        x, grad = self.kept.pop(i)
        self.grad += x.T @ grad


def go_through(row, layer, batch, target):
    """Do what a row says; return how many inputs were in memory at most."""
    rank, last, most = dist.get_rank(), dist.get_world_size() - 1, 0
    sends, inputs = [], []
    for what, i in row:
        if what == "F":
            x = batch[i] if rank == 0 else received(batch[i], rank - 1, tag=2 * i)
            out = layer.forward(i, x)
            sends += [sent(out, rank + 1, tag=2 * i)] if rank < last else []
            inputs.append(weakref.ref(x))  # tells whether x is still there
            del x, out
        elif what == "I":
            if rank == last:  # of the mean over all micro-batches, not over this one
                grad = 2 * (layer.kept[i][1] - target[i]) / target.numel()
            else:
                grad = received(batch[i], rank + 1, tag=2 * i + 1)
            grad = layer.input_grad(i, grad)
            sends += [sent(grad, rank - 1, tag=2 * i + 1)] if rank > 0 else []
        else:
            layer.weight_grad(i)
        most = max(most, sum(x() is not None for x in inputs))
    for work, _ in sends:
        work.wait()
    return most


def received(like, src, tag):
    recv_buf = torch.empty_like(like, device="cpu")  # gloo receives only there
    dist.recv(recv_buf, src, tag=tag)  # holds what the neighbor has made
    return recv_buf.to(like.device)


def sent(tensor, dst, tag):
    send_buf = tensor.cpu()
    return dist.isend(send_buf, dst, tag=tag), send_buf  # which must live till wait()


def one_f_one_b(rank, p, m):
    """The row of 1F1B, with each backward as I and W."""
    ahead = p - 1 - rank
    row = [("F", i) for i in range(ahead)]
    for i in range(m):
        row += [("F", ahead + i)] if ahead + i < m else []
        row += [("I", i), ("W", i)]
    return row


def main(rank, world_size, device):
    m, facts = 2 * world_size, {}
    torch.manual_seed(0)  # the same weights and data on every rank
    weights = torch.randn(world_size, WIDTH, WIDTH) * (2 / WIDTH) ** 0.5
    weights = weights.to(device).requires_grad_()
    batch, target = torch.randn(2, m, ROWS, WIDTH).to(device)
    out = batch
    for weight in weights:  # the reference: the uncut net, and autograd
        out = torch.relu(out @ weight)
    F.mse_loss(out, target).backward()

    row = one_f_one_b(rank, world_size, m)
    late = sorted(row, key=lambda action: action[0] == "W")  # the rest in its order
    for name, order in {"at once": row, "at the end": late}.items():
        layer = Layer(weights[rank].detach())
        kept = go_through(order, layer, batch, target)
        expected = weights.grad[rank]
        torch.testing.assert_close(layer.grad, expected, msg="gradient differs")
        if kept != (expected := m if order is late else min(m, world_size - rank)):
            raise AssertionError(f"{kept} inputs kept, expected {expected}")
        print(f"[rank {rank}] W {name}: as uncut, {kept} inputs kept", flush=True)
        facts[name] = kept
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
