"""Exercise: cut a gated block of three Linears with one sum forward and one backward.

    torchrun --standalone --nproc-per-node 2 ddp_lab/model/exercise_gated.py

Once `gated` is written, the ranks count what it communicates. Until then:

    [rank 0] not yet

Written by notebooks/14_model_parallel.ipynb.
"""

import gc
import json
import os
import random
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.elastic.multiprocessing.errors import record
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ROWS, WIDTH, HIDDEN = 6, 8, 24


def gated(x, w1, b1, w3, b3, w2, b2):
    """Return w2 (silu(w1 x + b1) * (w3 x + b3)) + b2, whole on every rank.

    This is the feed-forward block of many language models, with biases. x (6, 8) and
    b2 (8,) are whole; w1, b1, w3 and b3 are cut by outputs, w2 by inputs. The output
    and all gradients must equal the uncut block's, with one all_reduce forward, one
    backward and nothing else between the ranks: [1, 1], however many they are.
    SumOverRanks is already defined.
    """
    return None  # your code here


class SumOverRanks(torch.autograd.Function):
    """Sum on the way forward or on the way backward; the other way, just pass."""

    @staticmethod
    def forward(ctx, tensor, direction):
        ctx.direction = direction
        return total(tensor) if direction == "forward" else tensor.clone()

    @staticmethod
    def backward(ctx, grad):
        return total(grad) if ctx.direction == "backward" else grad, None


def total(tensor):
    tensor = tensor.clone()  # all_reduce writes in place, and this one is autograd's
    dist.all_reduce(tensor)  # every rank now holds the sum
    return tensor


def uncut(x, w1, b1, w3, b3, w2, b2):
    return F.linear(F.silu(F.linear(x, w1, b1)) * F.linear(x, w3, b3), w2, b2)


def share(tensor, dim):
    """This rank's slice along dim, or all of it for None, as a leaf of its own."""
    if dim is not None:
        tensor = tensor.chunk(dist.get_world_size(), dim)[dist.get_rank()]
    return tensor.detach().clone().requires_grad_()


class EveryCall(TorchDispatchMode):
    """Keeps each communication call, of every kind, and how many numbers it sends."""

    def __init__(self):
        super().__init__()
        self.made = []  # [name, numbers] of each call

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        name = op.name().split("::")[-1].strip("_")
        if "c10d" in op.namespace and not name.startswith(("wait", "wrap")):
            sent = [t.numel() for t in tree_leaves(args) if torch.is_tensor(t)]
            self.made.append([name, sum(sent)])
        return op(*args, **(kwargs or {}))


def counted(function, *args):
    """Call; return the result and how many all_reduces it took. No other call may."""
    with EveryCall() as calls:
        result = function(*args)
    for name, numbers in calls.made:
        if name not in ("allreduce", "all_reduce") or numbers != ROWS * WIDTH:
            expected = f"expected only all_reduces of {ROWS * WIDTH}"
            raise AssertionError(f"{name} of {numbers} numbers, {expected}")
    return result, len(calls.made)


def main(rank, world_size, device):
    if HIDDEN % world_size:
        raise ValueError(f"{world_size} ranks cannot share {HIDDEN} features")
    seed = torch.tensor(random.randrange(2**31), device=device)
    dist.broadcast(seed, src=0)  # all ranks draw the numbers that rank 0 draws
    torch.manual_seed(seed.item())
    shapes = [(HIDDEN, WIDTH), (HIDDEN,)] * 2 + [(WIDTH, HIDDEN), (WIDTH,)]
    # In float32, sums in another order differ by more than rounding allows for.
    options = {"device": device, "dtype": torch.float64}
    tensors = [torch.randn(s, **options) for s in [(ROWS, WIDTH), *shapes]]
    dims = [None, 0, 0, 0, 0, 1, None]  # PyTorch stores weights as (out, in)
    mine = [share(t, dim) for t, dim in zip(tensors, dims, strict=True)]
    whole = [share(t, None) for t in tensors]

    out, forward = counted(gated, *mine)
    if out is None:
        print(f"[rank {rank}] not yet", flush=True)
        print(json.dumps({"solved": False}), flush=True)
        dist.barrier()  # to leave now would cut off those that are still joining
        return
    expected = uncut(*whole)
    torch.testing.assert_close(out, expected, msg="output differs")
    grad = torch.linspace(-1, 1, expected.numel(), **options).view_as(expected)
    _, backward = counted(out.backward, grad)
    expected.backward(grad)
    for p, t, dim in zip(mine, whole, dims, strict=True):
        torch.testing.assert_close(p.grad, share(t.grad, dim), msg="gradient wrong")
    sums = [forward, backward]
    if sums != [1, 1]:
        raise AssertionError(f"all_reduces forward, backward: {sums}, not [1, 1]")
    print(f"[rank {rank}] as uncut, all_reduces {sums}", flush=True)
    return {"solved": True, "sums": sums}


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
