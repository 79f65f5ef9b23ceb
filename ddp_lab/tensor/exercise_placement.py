"""Exercise: a plan for a block whose activations stay cut along time.

    torchrun --standalone --nproc-per-node 2 ddp_lab/tensor/exercise_placement.py

Once `plan` is written, the ranks try it and count. Until then:

    [rank 0] not yet

Written by notebooks/18_meshes.ipynb.
"""

import copy
import gc
import json
import os
import time
from collections import Counter
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_lab.gpt import Block, Config

# Width, heads, and the shape (batch, time) of what the block gets.
CASES = ((96, 12, 4, 24), (48, 12, 2, 12), (24, 12, 1, 36))
TARGET = {"all_gather": 2, "reduce_scatter": 2}


def plan():
    """Return the plan for one Block: a dict of module names and styles.

    The names are norm1, attention, attention.query, attention.key, attention.value,
    attention.out, norm2, mlp, mlp.up and mlp.down. Imported are ColwiseParallel,
    RowwiseParallel, SequenceParallel, PrepareModuleInput, PrepareModuleOutput,
    PrepareModuleInputOutput, Shard and Replicate. The block gets (batch, time, width)
    as Shard(1), and returns it as Shard(1).
    """
    return None  # your code here


class EveryCall(TorchDispatchMode):
    """Counts the communication calls of every kind, by name."""

    def __init__(self):
        super().__init__()
        self.made = Counter()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if DTensor in types:
            return NotImplemented  # first DTensor turns it into work on local parts
        name = op.name().split("::")[-1].strip("_").split("_tensor")[0]
        told = "c10d" in op.namespace or "alltoall" in name
        if told and not name.startswith(("wait", "wrap")):
            self.made[name.removesuffix("_into")] += 1
        return op(*args, **(kwargs or {}))


def seed():
    """A number that no one knows beforehand, the same on all ranks."""
    drawn = [time.time_ns() % 2**31]
    dist.broadcast_object_list(drawn, src=0)
    return drawn[0]


def piece(tensor):
    """This rank's positions of (batch, time, width), as a leaf of its own."""
    mine = tensor.chunk(dist.get_world_size(), 1)[dist.get_rank()]
    return mine.detach().clone().requires_grad_()


def expect(mine, whole, what):
    if mine.shape != whole.shape:
        shapes = f"{tuple(mine.shape)}, not {tuple(whole.shape)}"
        raise AssertionError(f"{what} has the shape {shapes}")
    message = f"{what} is wrong"
    torch.testing.assert_close(mine, whole, rtol=0, atol=1e-9, msg=message)


def check_weights(cut, whole, world_size):
    """Compare gradients, and see that each rank holds its share of the Linears."""
    linears = [f"{n}.weight" for n, m in whole.named_modules() if type(m) is nn.Linear]
    expected = dict(whole.named_parameters())
    for name, p in cut.named_parameters():
        held = (p.to_local() if isinstance(p, DTensor) else p).numel()
        if name in linears and held * world_size != expected[name].numel():
            raise AssertionError(f"{name}: this rank holds {held} numbers")
        grad = p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad
        expect(grad, expected[name].grad, f"gradient of {name}")


def attempt(case, mesh, device):
    """Try the plan on one block; return the calls of forward and of backward."""
    width, heads, size, time_steps = case
    torch.manual_seed(seed())
    block = Block(Config(width=width, heads=heads)).double().to(device)
    cut = parallelize_module(copy.deepcopy(block), mesh, plan())
    x = torch.randn(size, time_steps, width, dtype=torch.float64, device=device)
    mine, whole = piece(x), x.clone().requires_grad_()
    with EveryCall() as forward:
        out = cut(mine)
    if isinstance(out, DTensor):
        raise AssertionError("the block returns a DTensor: give back the local tensor")
    expected = block(whole)
    expect(out, piece(expected), "the output")
    grad = torch.randn_like(expected)
    with EveryCall() as backward:
        out.backward(piece(grad).detach())
    expected.backward(grad)
    expect(mine.grad, piece(whole.grad), "the gradient of x")
    check_weights(cut, block, mesh.size())
    return [dict(sorted(calls.made.items())) for calls in (forward, backward)]


def main(rank, world_size, device):
    if 12 % world_size:
        raise ValueError(f"{world_size} ranks cannot share 12 heads")
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    mesh = init_device_mesh(device.type, (world_size,), mesh_dim_names=("tensor",))
    if plan() is None:
        print(f"[rank {rank}] not yet", flush=True)
        print(json.dumps({"solved": False}), flush=True)
        dist.barrier()  # to leave now would cut off those that are still joining
        return
    for case in CASES:
        calls = attempt(case, mesh, device)
        if calls != [TARGET, TARGET]:
            raise AssertionError(f"forward, backward: {calls}, not {TARGET} each")
    print(f"[rank {rank}] as uncut, {calls[0]} forward and backward", flush=True)
    return {"solved": True, "calls": calls}


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
