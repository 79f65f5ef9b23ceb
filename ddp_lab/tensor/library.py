"""The GPT cut by a plan of the library: as uncut, and the sums that the plan costs.

    torchrun --standalone --nproc-per-node 2 ddp_lab/tensor/library.py

Written by notebooks/18_meshes.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.tensor import DTensor, Replicate, distribute_module
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)

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
    parallelize_module(net, mesh, styles)
    # Embedding and head were one Parameter, and the call has made two of it.
    net.head.weight = net.tokens.weight
    return net


def gradients(net, x, y):
    """Leave gradients; return how many collectives forward and backward took."""
    with loss_parallel():  # the logits stay cut, through backward as well
        with CommDebugMode() as forward:
            loss = F.cross_entropy(net(x).flatten(0, 1), y.flatten())
        with CommDebugMode() as backward:
            loss.backward()
    return [made.get_total_counts() for made in (forward, backward)]


def check(net, expected):
    """Compare all gradients and their norm; return how many numbers a rank holds."""
    for (name, p), e in zip(net.named_parameters(), expected.parameters(), strict=True):
        grad = p.grad.full_tensor()  # every rank holds the whole gradient
        message = f"gradient of {name} differs"
        torch.testing.assert_close(grad, e.grad, rtol=0, atol=1e-9, msg=message)
    norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0).full_tensor()
    whole = nn.utils.get_total_norm([e.grad for e in expected.parameters()])
    torch.testing.assert_close(norm, whole, msg="the norm differs")
    return sum(p.to_local().numel() for p in net.parameters())


def uncut(device):
    torch.manual_seed(0)  # the same weights on every rank, and each time
    return GPT().double().to(device)


def main(rank, world_size, device):
    if 12 % world_size:
        raise SystemExit(f"{world_size} ranks cannot share 12 heads: try 2, 3 or 4")
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    mesh = init_device_mesh(device.type, (world_size,))
    x, y = (tokens.to(device) for tokens in batch(0))
    expected = uncut(device)
    loss_of(expected(x), y).backward()
    whole, sums = sum(p.numel() for p in expected.parameters()), {}
    for styles in (plan, shared_input):
        net, name = cut(uncut(device), mesh, styles()), styles.__name__
        sums[name] = gradients(net, x, y)
        held = check(net, expected)
        told = f"all_reduces {sums[name]}, holds {held} of {whole}"
        print(f"[rank {rank}] {name}: as uncut, {told}", flush=True)
    if sums["shared_input"] != [12, 9]:
        raise AssertionError(f"more than by hand: {sums}")
    return {"sums": sums, "held": held, "whole": whole}


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
