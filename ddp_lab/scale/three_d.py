"""Tensor, data and pipeline on one mesh: the loss and gradients of one process.

    torchrun --standalone --nproc-per-node 8 ddp_lab/scale/three_d.py

    [rank 5] at (1, 0, 1): loss and gradients as in one process

Written by notebooks/21_all_at_once.ipynb.
"""

import copy
import gc
import json
import os
from collections import Counter
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_lab.gpt import GPT, Config, batch, loss_of

CONFIG, TIME, STEPS, RATE, MICRO, ROWS = Config(), 32, 2, 0.1, 4, 16
# What is cut, and along which dimension of its weight: PyTorch stores (out, in).
DIMS = {"query": 0, "key": 0, "value": 0, "out": 1, "up": 0, "down": 1}

NAMES = "pipeline", "data", "tensor"  # the last one runs fastest
SHAPES = {2: (1, 1, 2), 3: (1, 1, 3), 4: (2, 1, 2), 6: (2, 1, 3), 8: (2, 2, 2)}
groups, sent = {}, Counter()  # by dimension: this rank's group, and the bytes it sends


def share(name, tensor):
    """This rank's share of a parameter or a gradient; all of it, if it is not cut."""
    if (dim := DIMS.get(name.split(".")[-2])) is None:
        return tensor
    line = groups["tensor"]
    return tensor.chunk(dist.get_world_size(line), dim)[dist.get_rank(line)]


def all_reduce(part, along):
    """Return a new tensor, the sum along one dimension of the mesh; count its bytes."""
    whole = part.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(whole, group=groups[along])  # this line's ranks hold the sum
    n = dist.get_world_size(groups[along])
    sent[along] += 2 * (n - 1) * part.nbytes // n  # as a ring sends them
    return whole


class Sum(torch.autograd.Function):
    """Sums along tensor on the way there, which is g, or on the way back: f."""

    @staticmethod
    def forward(ctx, x, there):
        ctx.there = there
        return all_reduce(x, "tensor") if there else x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad if ctx.there else all_reduce(grad, "tensor"), None


def cut(net):
    """Leave this rank its shares; put f in front of each pair, and g behind it."""
    for name, module in net.named_modules():
        if name.split(".")[-1] in DIMS:
            mine = share(f"{name}.weight", module.weight.detach())
            module.weight = nn.Parameter(mine.clone())
    for block in net.blocks:
        for pair in (block.attention, block.mlp):
            pair.register_forward_pre_hook(lambda _, inputs: Sum.apply(*inputs, False))
            pair.register_forward_hook(lambda _, inputs, out: Sum.apply(out, True))
    return net


def check(step, net, expected, losses, truth):
    """Compare the loss, and every gradient with this rank's share of the whole one."""
    if losses:  # of the micro-batches, on the last stage
        mean = all_reduce(torch.stack(losses).mean().detach(), "data")
        mean /= dist.get_world_size(groups["data"])
        torch.testing.assert_close(mean, truth.detach(), rtol=0, atol=1e-12)
    for name, p in net.named_parameters():
        apart = (p.grad - share(name, expected.get_parameter(name).grad)).abs().max()
        if not apart < 1e-12:
            raise AssertionError(f"step {step}: {name} is {apart:.0e} from the truth")


class Passed(TorchDispatchMode):
    """Counts the bytes that the pipeline's schedule sends."""

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op.name() == "c10d::send":
            sent["pipeline"] += sum(tensor.nbytes for tensor in args[0])
        return op(*args, **(kwargs or {}))


def only(net, stage, stages):
    """Leave a stage its blocks; the first one embeds, and the last one has the head."""
    for n in range(len(net.blocks)):
        if n * stages // len(net.blocks) != stage:
            net.blocks[n] = nn.Identity()  # so the others keep their names
    if stage > 0:
        net.tokens, net.positions = nn.Identity(), nn.Identity()
        net.positions.register_forward_hook(lambda *_: 0)  # nothing to add
    if stage < stages - 1:
        net.norm, net.head = nn.Identity(), nn.Identity()
    return net


def finish(net, pipe):
    """Average the gradients along data; sum both uses of the tied weight."""
    turns = dist.get_world_size(groups["data"])
    for weight in net.parameters():
        weight.grad = all_reduce(weight.grad, "data") / turns
    tied = net.tokens if pipe.is_first else net.head
    dist.all_reduce(tied.weight.grad, group=groups["pipeline"])  # both ends


def main(rank, world_size, device):
    # Ranks that share a GPU: gloo can send and receive only what is in host memory.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    if not (shape := SHAPES.get(world_size)):
        raise SystemExit(f"no mesh for {world_size} ranks: try 2, 3, 4, 6 or 8")
    mesh = init_device_mesh(device.type, shape, mesh_dim_names=NAMES)
    groups.update({name: mesh.get_group(name) for name in NAMES})
    stage, turn = (mesh.get_local_rank(name) for name in ("pipeline", "data"))
    stages, turns = mesh["pipeline"].size(), mesh["data"].size()
    torch.manual_seed(0)  # every rank starts from one model
    expected = GPT(CONFIG).double().to(device)
    net = only(cut(copy.deepcopy(expected)), stage, stages)
    pipe = PipelineStage(net, stage, stages, device, group=groups["pipeline"])
    schedule = Schedule1F1B(pipe, MICRO, loss_fn=loss_of)
    sgd = torch.optim.SGD([*net.parameters(), *expected.parameters()], RATE)
    for step in range(STEPS):
        x, y = (tokens.to(device) for tokens in batch(step, ROWS, TIME))
        truth, losses = loss_of(expected(x), y), []
        truth.backward()
        # Ranks of a tensor group and of a pipeline get the same rows.
        mine, targets = (tokens.chunk(turns)[turn] for tokens in (x, y))
        sent.clear()
        with Passed():
            inputs = [mine] if pipe.is_first else []
            schedule.step(*inputs, target=targets, losses=losses)
        finish(net, pipe)
        cost = dict(sent)
        check(step, net, expected, losses, truth)
        sgd.step()
        sgd.zero_grad()
    at = tuple(mesh.get_coordinate())
    print(f"[rank {rank}] at {at}: loss and gradients as in one process", flush=True)
    lines = {name: mesh[name].mesh.tolist() for name in NAMES}
    per_node = int(os.environ["LOCAL_WORLD_SIZE"])  # torchrun numbers node by node
    across = {name: len({r // per_node for r in lines[name]}) for name in NAMES}
    held = sum(p.nbytes for p in net.parameters())
    return {"at": at, "groups": lines, "across": across, "held": held, "sent": cost}


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
