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
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_lab.gpt import GPT, batch, loss_of


def plan():
    """Say how each module is cut; a star stands for any block."""
    return {
        # Each rank looks up the characters that it has; the results are summed.
        "tokens": RowwiseParallel(input_layouts=Replicate()),
        "blocks.*.attention.query": ColwiseParallel(),
        "blocks.*.attention.key": ColwiseParallel(),
        "blocks.*.attention.value": ColwiseParallel(),
        "blocks.*.attention.out": RowwiseParallel(),
        "blocks.*.mlp.up": ColwiseParallel(),
        "blocks.*.mlp.down": RowwiseParallel(),
        # Each rank keeps the logits of its characters, as a DTensor.
        "head": ColwiseParallel(use_local_output=False),
    }


def cut(net, mesh, styles):
    parallelize_module(net, mesh["tensor"], styles)  # first: it wants plain weights
    net.head.weight = net.tokens.weight
    for part in (*net.blocks, net):
        fully_shard(part, mesh=mesh["data"])  # cuts each rank's part once more
    return net


def shared_input():
    """The same plan, but the attention's input becomes a DTensor once, not thrice."""
    whole = PrepareModuleInput(
        input_layouts=Replicate(), desired_input_layouts=Replicate()
    )
    return plan() | {"blocks.*.attention": whole}


def group_of(args):
    """The name of a call's group: fully_shard passes the group, DTensor its name."""
    boxed = [arg for arg in args if isinstance(arg, torch.ScriptObject)]
    return dist.ProcessGroup.unbox(boxed[0]).group_name if boxed else args[-1]


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


def gradients(net, x, y):
    with loss_parallel():  # the logits stay cut, through backward as well
        F.cross_entropy(net(x).flatten(0, 1), y.flatten()).backward()


def check(net, expected):
    """Compare all gradients; return how many numbers of the weights a rank holds."""
    for (name, p), e in zip(net.named_parameters(), expected.parameters(), strict=True):
        # Every rank holds the whole gradient; weights that are not cut are plain.
        grad = p.grad.full_tensor() if isinstance(p, DTensor) else p.grad
        message = f"gradient of {name} differs"
        torch.testing.assert_close(grad, e.grad, rtol=0, atol=1e-9, msg=message)
    local = (p.to_local() if isinstance(p, DTensor) else p for p in net.parameters())
    return sum(p.numel() for p in local)


def uncut(device):
    torch.manual_seed(0)  # the same weights on every rank, and each time
    return GPT().double().to(device)


def gradient_norm(net):
    """The norm of all gradients, one mesh after the other; return it on every rank."""
    by_mesh = {}
    for p in net.parameters():
        by_mesh.setdefault(p.device_mesh, []).append(p.grad)
    norms = [nn.utils.get_total_norm(grads) for grads in by_mesh.values()]
    return torch.stack([norm.full_tensor() for norm in norms]).norm()


def refusal(net):
    """What clip_grad_norm_ says to weights of two meshes."""
    try:
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    except RuntimeError as error:
        return str(error).split(", but")[0]


def main(rank, world_size, device):
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    inner = next(n for n in range(2, world_size + 1) if world_size % n == 0)
    shape, names = (world_size // inner, inner), ("data", "tensor")
    mesh = init_device_mesh(device.type, shape, mesh_dim_names=names)
    logging.disable(logging.WARNING if rank else 0)  # one rank's warnings are enough
    x, y = (tokens.to(device) for tokens in batch(0))
    expected = uncut(device)
    loss_of(expected(x), y).backward()
    net = cut(uncut(device), mesh, shared_input())
    turn, turns = mesh["data"].get_local_rank(), mesh["data"].size()
    # Ranks of one tensor group see the same rows, those of one data group differ.
    mine = [tokens.chunk(turns)[turn] for tokens in (x, y)]
    with ByGroup(mesh) as step:
        gradients(net, *mine)
    with ByGroup(mesh) as look:
        net.tokens.weight.full_tensor()
    held, made, hidden = check(net, expected), dict(step.made), dict(look.made)
    norm = nn.utils.get_total_norm([e.grad for e in expected.parameters()])
    torch.testing.assert_close(gradient_norm(net), norm, msg="the norm differs")
    truth = {"all_reduce tensor": 21}
    if turns > 1:  # a mesh with one row has nothing to shard
        truth |= {"gather data": 9, "reduce_scatter data": 5}
    if made != truth:
        raise AssertionError(f"{made}, expected {truth}")
    print(f"[rank {rank}] as one process; {made}, full_tensor() {hidden}", flush=True)
    placements = str(net.blocks[0].mlp.up.weight.placements)
    facts = {"made": made, "hidden": hidden, "placements": placements}
    return facts | {"held": held, "refusal": refusal(net)}


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
