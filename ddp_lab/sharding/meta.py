"""Build a model without memory, shard it, and fill it with one rank's weights.

    torchrun --standalone --nproc-per-node 2 ddp_lab/sharding/meta.py

Written by notebooks/16_fully_shard.ipynb.
"""

import gc
import json
import os
import warnings
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    set_model_state_dict,
)
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_lab.gpt import GPT, batch, loss_of


def build(mesh):
    """Return the same whole model on every rank."""
    torch.manual_seed(0)
    return GPT().to(mesh.device_type)


def shard(model, mesh, **options):
    """Make a group of each block, and one more of what is left at the root."""
    # A warning: the logits are a view, so leave them unchanged. We do.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module")
    for block in model.blocks:
        fully_shard(block, mesh=mesh, **options)
    # The root comes last: it takes what no group has taken before.
    return fully_shard(model, mesh=mesh, **options)


class Calls(TorchDispatchMode):
    """Counts collectives by name."""

    made = ""

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if DTensor in types:
            return NotImplemented  # first DTensor turns it into work on local parts
        self.made += f" {op.name()}" * ("c10d" in op.namespace)
        return op(*args, **(kwargs or {}))

    def count(self, kind):
        return self.made.count(kind)


def step(model, x, y):
    """Forward and backward; count all_gathers in each, then reduce_scatters."""
    with Calls() as forward:
        loss = loss_of(model(x), y)
    with Calls() as backward:
        loss.backward()
    gathers = forward.count("allgather"), backward.count("allgather")
    return [*gathers, backward.count("reduce_scatter")]


def part(number, mesh):
    """Return this rank's rows of a batch, and their targets."""
    x, y = batch(number)
    if len(x) % mesh.size():
        raise ValueError(f"{mesh.size()} ranks cannot share {len(x)} rows equally")
    mine = (tensor.chunk(mesh.size())[mesh.get_rank()] for tensor in (x, y))
    return [tensor.to(mesh.device_type) for tensor in mine]


def check(model, expected):
    """Compare each gradient with the uncut model's."""
    weights = zip(model.named_parameters(), expected.parameters(), strict=True)
    for (name, p), e in weights:
        # full_tensor() gathers the rows: every rank holds the whole gradient.
        gradient = p.grad.full_tensor()
        torch.testing.assert_close(gradient, e.grad, msg=f"{name}: gradient differs")


def whole(mesh):
    """Return the truth: one process, the uncut model and all rows."""
    model, (x, y) = build(mesh), batch(0)
    loss_of(model(x.to(mesh.device_type)), y.to(mesh.device_type)).backward()
    return model


def bytes_here(model):
    """Count the bytes of weights on this rank; on meta a tensor has none."""
    parts = [p.to_local() if hasattr(p, "to_local") else p for p in model.parameters()]
    return sum(t.nbytes for t in parts if not t.is_meta)


def try_out(mesh, x, y):
    with torch.device("meta"):
        model = GPT()
    stages = [bytes_here(model)]
    shard(model, mesh)
    stages.append(bytes_here(model))
    model.to_empty(device=mesh.device_type)  # memory for this rank's rows, any values
    stages.append(bytes_here(model))

    weights = build(mesh).state_dict() if mesh.get_rank() == 0 else {}
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    # Each rank now holds its rows of rank 0's weights.
    set_model_state_dict(model, weights, options=options)
    calls = step(model, x, y)
    check(model, whole(mesh))
    tied = model.head.weight is model.tokens.weight
    mine = sum(p.to_local().nbytes for p in model.parameters())
    if stages != [0, 0, mine] or not tied:
        raise AssertionError(f"bytes here {stages}, embedding and head tied: {tied}")
    return {"stages": stages, "calls": calls, "tied": tied}


def main(rank, world_size, device):
    # gloo, with GPUs that ranks share, can gather only what is in host memory.
    kind = "cpu" if dist.get_backend() == "gloo" else device.type
    mesh = dist.init_device_mesh(kind, (world_size,))
    facts = try_out(mesh, *part(0, mesh))
    for name, fact in facts.items():
        print(f"[rank {rank}] {name}: {fact}", flush=True)
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
