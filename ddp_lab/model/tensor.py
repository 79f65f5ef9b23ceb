"""One Linear cut over the ranks by columns, one by rows, and the two in a row.

    torchrun --standalone --nproc-per-node 2 ddp_lab/model/tensor.py

Written by notebooks/14_model_parallel.ipynb.
"""

import functools
import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record

ROWS, WIDTH, HIDDEN = 6, 8, 24
all_reduces = {"forward": 0, "backward": 0}


class SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, direction):
        ctx.direction = direction
        return total(tensor, direction) if direction == "forward" else tensor.clone()

    @staticmethod
    def backward(ctx, grad):
        if ctx.direction == "backward":
            grad = total(grad, ctx.direction)
        return grad, None  # direction has no gradient


def column_linear(x, weight, bias):
    """x is whole, weight and bias are this rank's outputs; so is what comes out."""
    # Every rank used x for its own outputs: d loss / d x is the sum over the ranks.
    x = SumOverRanks.apply(x, "backward")
    return F.linear(x, weight, bias)  # (ROWS, HIDDEN / n)


def row_linear(x, weight, bias):
    """x and weight are this rank's inputs; bias is whole, and so is what comes out."""
    y = SumOverRanks.apply(F.linear(x, weight), "forward")  # (ROWS, WIDTH)
    return y + bias  # after the sum: before it, every rank would add it once


def both(x, w1, b1, w2, b2, first=column_linear, second=row_linear):
    """ReLU looks at each feature alone, so the shares need no message in between."""
    return second(F.relu(first(x, w1, b1)), w2, b2)


def total(tensor, direction):
    """Count, and return a new tensor: the sum of all ranks' tensors."""
    all_reduces[direction] += 1
    tensor = tensor.clone()  # all_reduce writes in place, and this one is autograd's
    dist.all_reduce(tensor)  # every rank now holds the sum
    return tensor


def share(tensor, dim):
    """This rank's slice along dim, or all of it for None, as a new leaf."""
    if dim is not None:
        if tensor.size(dim) % dist.get_world_size():
            raise ValueError(f"{tensor.size(dim)} features cannot be shared equally")
        tensor = tensor.chunk(dist.get_world_size(), dim)[dist.get_rank()]
    return tensor.detach().clone().requires_grad_()


def check(layer, unsplit, tensors, dims, out_dim=None):
    """Compare output and gradients with the unsplit layer's; return what they cost."""
    all_reduces.update(forward=0, backward=0)
    mine = [share(t, dim) for t, dim in zip(tensors, dims, strict=True)]
    whole = [share(t, None) for t in tensors]
    out, expected = layer(*mine), unsplit(*whole)
    torch.testing.assert_close(out, share(expected, out_dim), msg="output differs")

    grad = torch.linspace(-1, 1, expected.numel()).view_as(expected).to(out.device)
    out.backward(share(grad, out_dim))
    expected.backward(grad)
    for p, t, dim in zip(mine, whole, dims, strict=True):
        torch.testing.assert_close(p.grad, share(t.grad, dim), msg="gradient differs")
    return all_reduces | {"held": sum(weight.numel() for weight in mine[1:])}


def main(rank, world_size, device):
    torch.manual_seed(0)  # the same numbers on every rank
    w1, b1 = nn.Linear(WIDTH, HIDDEN, device=device).parameters()
    w2, b2 = nn.Linear(HIDDEN, WIDTH, device=device).parameters()
    x = torch.randn(ROWS, WIDTH, device=device)
    hidden = torch.randn(ROWS, HIDDEN, device=device)
    pair = functools.partial(both, first=F.linear, second=F.linear)
    facts = {
        "column": check(column_linear, F.linear, [x, w1, b1], [None, 0, 0], 1),
        "row": check(row_linear, F.linear, [hidden, w2, b2], [1, 1, None]),
        "both": check(both, pair, [x, w1, b1, w2, b2], [None, 0, 0, 1, None]),
    }
    for name, fact in facts.items():
        cost = f"{fact['forward']} forward, {fact['backward']} backward"
        print(f"[rank {rank}] {name}: as unsplit, all_reduces: {cost}", flush=True)
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
