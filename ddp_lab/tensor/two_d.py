"""Tensor parallel inside, fully_shard outside: one process's step, counted by group.

    torchrun --standalone --nproc-per-node 2 ddp_lab/tensor/two_d.py

Written by notebooks/18_meshes.ipynb.
"""

import gc
import json
import logging
import os
from collections import Counter
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, distribute_module
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_lab.gpt import GPT, batch, loss_of


class Whole(ParallelStyle):
    """Every rank has the whole weights, and takes and returns plain tensors."""

    def _apply(self, module, mesh):
        def enter(module, inputs, mesh):
            return tuple(DTensor.from_local(x, mesh, [Replicate()]) for x in inputs)

        return distribute_module(
            module, mesh, None, enter, lambda _, output, mesh: output.to_local()
        )


def plan():
    """Say how each module is cut; a star stands for any block."""
    return {
        # Each rank looks up the words that it has; the results are summed.
        "tokens": RowwiseParallel(input_layouts=Replicate()),
        "blocks.*.attention.query": ColwiseParallel(),
        "blocks.*.attention.key": ColwiseParallel(),
        "blocks.*.attention.value": ColwiseParallel(),
        "blocks.*.attention.out": RowwiseParallel(),
        "blocks.*.mlp.up": ColwiseParallel(),
        "blocks.*.mlp.down": RowwiseParallel(),
        # Each rank keeps the logits of its words, as a DTensor.
        "head": ColwiseParallel(use_local_output=False),
        # Not cut, but in the plan: then all weights are DTensors on one mesh.
        "positions": Whole(),
        "blocks.*.norm1": Whole(),
        "blocks.*.norm2": Whole(),
        "norm": Whole(),
    }


def shared_input():
    """The same plan, but the attention's input becomes a DTensor once, not thrice."""
    whole = PrepareModuleInput(
        input_layouts=Replicate(), desired_input_layouts=Replicate()
    )
    return plan() | {"blocks.*.attention": whole}


def cut(net, mesh, styles):
    parallelize_module(net, mesh["tensor"], styles)  # first: it wants plain weights
    net.head.weight = net.tokens.weight
    for part in (*net.blocks, net):
        fully_shard(part, mesh=mesh["data"])  # cuts each rank's part once more
    return net


def gradients(net, x, y):
    with loss_parallel():
        F.cross_entropy(net(x).flatten(0, 1), y.flatten()).backward()


class ByGroup(TorchDispatchMode):
    """Counts the collectives along each dimension of a mesh."""

    def __init__(self, mesh):
        super().__init__()
        self.names = {mesh.get_group(n).group_name: n for n in mesh.mesh_dim_names}
        self.made = Counter()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if DTensor in types:
            return NotImplemented
        if "c10d" in op.namespace and (along := self.names.get(group_of(args))):
            kinds = ("all_reduce", "reduce_scatter", "gather")
            kind = next(kind for kind in kinds if kind in op.name())
            self.made[f"{kind} {along}"] += 1
        return op(*args, **(kwargs or {}))


def group_of(args):
    """The name of a call's group: fully_shard passes the group, DTensor its name."""
    boxed = [arg for arg in args if isinstance(arg, torch.ScriptObject)]
    return dist.ProcessGroup.unbox(boxed[0]).group_name if boxed else args[-1]


def check(net, norm, expected):
    """Compare all gradients, clipped, and their norm before that."""
    whole = nn.utils.clip_grad_norm_(expected.parameters(), 1.0)
    torch.testing.assert_close(norm, whole, msg="the norm differs")
    logging.disable(logging.WARNING)  # two gathers for a weight that was cut twice
    for (name, p), e in zip(net.named_parameters(), expected.parameters(), strict=True):
        grad = p.grad.full_tensor()  # every rank holds the whole gradient
        torch.testing.assert_close(grad, e.grad, rtol=0, atol=1e-9, msg=name)


def uncut(device):
    torch.manual_seed(0)  # the same weights on every rank, and each time
    return GPT().double().to(device)


def step(net, mesh, x, y):
    """Leave the clipped gradients of the whole batch; return their norm."""
    # Ranks of one tensor group see the same samples, those of one data group differ.
    turn, turns = mesh["data"].get_local_rank(), mesh["data"].size()
    gradients(net, *(t.chunk(turns)[turn] for t in (x, y)))
    return nn.utils.clip_grad_norm_(net.parameters(), 1.0).full_tensor()


def main(rank, world_size, device):
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    inner = next(n for n in range(2, world_size + 1) if world_size % n == 0)
    shape, names = (world_size // inner, inner), ("data", "tensor")
    mesh = init_device_mesh(device.type, shape, mesh_dim_names=names)
    mesh._flatten("all")  # one group of all ranks, for the norm
    x, y = (tokens.to(device) for tokens in batch(0))
    expected = uncut(device)
    loss_of(expected(x), y).backward()
    net = cut(uncut(device), mesh, shared_input())
    with ByGroup(mesh) as by_group:
        norm = step(net, mesh, x, y)
    check(net, norm, expected)
    made, right = dict(by_group.made), {"all_reduce tensor": 22}
    if shape[0] > 1:  # one row has nothing to shard, and sums the norm along tensor
        right = {"all_reduce tensor": 21, "gather data": 9, "reduce_scatter data": 5}
    if made != right:
        raise AssertionError(f"{made}, expected {right}")
    print(f"[rank {rank}] norm {norm:.4f} as one process; {made}", flush=True)
    held = sum(p.to_local().numel() for p in net.parameters())
    placements = str(net.blocks[0].mlp.up.weight.placements)
    return {"made": made, "held": held, "placements": placements}


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
