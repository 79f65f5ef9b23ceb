"""A GPT whose blocks are cut over the ranks takes the steps of the uncut one.

    torchrun --standalone --nproc-per-node 2 ddp_lab/tensor/conjugate.py

Written by notebooks/17_tensor_parallel.ipynb.
"""

import copy
import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record

from ddp_lab.gpt import GPT, Config, batch, loss_of

CONFIG, TIME, STEPS, RATE = Config(), 24, 3, 0.1
# What is cut, and along which dimension of its weight: PyTorch stores (out, in).
DIMS = {"query": 0, "key": 0, "value": 0, "out": 1, "up": 0, "down": 1}
calls = []  # of the step: [collective, bytes of the whole tensor]


def all_reduce(part, op=dist.ReduceOp.SUM):
    """Count the call; return a new tensor, the sum of all ranks' tensors."""
    whole = part.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(whole, op)  # every rank now holds the sum
    calls.append(["all_reduce", whole.nbytes])
    return whole


class Enter(torch.autograd.Function):
    """f: x is whole on every rank; each share computes a part of its gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)  # the same numbers; autograd wants a new tensor

    @staticmethod
    def backward(ctx, grad):
        return all_reduce(grad)


class Leave(torch.autograd.Function):
    """g: each share computes a part of the sum, whose gradient is whole everywhere."""

    @staticmethod
    def forward(ctx, part):
        return all_reduce(part)

    @staticmethod
    def backward(ctx, grad):
        return grad


def share(name, tensor):
    """This rank's share of a parameter or a gradient; all of it, if it is not cut."""
    if (dim := DIMS.get(name.split(".")[-2])) is None:
        return tensor
    return tensor.chunk(dist.get_world_size(), dim)[dist.get_rank()]


def cut(net):
    """Leave this rank its shares; put f in front of each pair, and g behind it."""
    for name, module in net.named_modules():
        if name.split(".")[-1] in DIMS:
            mine = share(f"{name}.weight", module.weight.detach())
            module.weight = nn.Parameter(mine.clone())
    for block in net.blocks:
        for pair in (block.attention, block.mlp):
            pair.register_forward_pre_hook(lambda _, inputs: Enter.apply(*inputs))
            pair.register_forward_hook(lambda _, inputs, out: Leave.apply(out))
    return net


def make_step(net, tokens, targets, loss_of):
    """Forward and backward; return the loss, the calls, and the bytes kept between."""
    calls.clear()
    kept = {}  # by address: a tensor that is saved twice counts once

    def keep(tensor):  # called for each tensor that autograd saves for backward
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved):
        loss = loss_of(net(tokens), targets)
    forward = len(calls)
    loss.backward()
    cost = {"forward": calls[:forward], "backward": calls[forward:]}
    cost["held"] = sum(weight.numel() for weight in net.parameters())
    weights = {weight.untyped_storage().data_ptr() for weight in net.parameters()}
    return loss.item(), cost | {"kept": sum(kept[at] for at in kept.keys() - weights)}


def check(step, apart, net, expected):
    """Compare every gradient with the uncut network's, or this rank's share of it."""
    whole = {name: p.grad for name, p in expected.named_parameters()}
    wrong = []
    for name, p in net.named_parameters():
        if not torch.allclose(p.grad, share(name, whole[name]), rtol=0, atol=1e-12):
            wrong.append(name)
    if wrong or not apart <= 1e-12:
        told = f"loss {apart:.0e} off, {len(wrong)} of {len(whole)} gradients differ"
        raise AssertionError(f"step {step}: {told}: {', '.join(wrong)}")


def main(rank, world_size, device):
    if CONFIG.heads % world_size or TIME % world_size:
        raise SystemExit(f"{world_size} ranks cannot share 12 heads: try 2, 3 or 4")
    # Ranks that share a GPU: not all of gloo's calls take what is in its memory.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    torch.manual_seed(0)  # the same weights on every rank
    expected = GPT(CONFIG).double().to(device)
    net = cut(copy.deepcopy(expected))
    sgd = torch.optim.SGD([*net.parameters(), *expected.parameters()], RATE)
    for step in range(STEPS):
        tokens, targets = (t.to(device) for t in batch(step, time=TIME))
        right, whole = make_step(expected, tokens, targets, loss_of)
        loss, mine = make_step(net, tokens, targets, loss_of)
        check(step, abs(loss - right), net, expected)
        sgd.step()
        sgd.zero_grad()
        print(f"[rank {rank}] step {step}: loss {loss:.4f}, as uncut", flush=True)
    return {"mine": mine, "whole": whole}


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
