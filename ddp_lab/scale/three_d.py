"""Tensor, data and pipeline on one mesh: the loss and gradients of one process.

    torchrun --standalone --nproc-per-node 8 ddp_lab/scale/three_d.py

    [rank 5] at (1, 0, 1): loss and gradients as in one process

Written by notebooks/18_all_at_once.ipynb.
"""

import copy
import gc
import json
import os
from collections import Counter
from contextlib import contextmanager
from itertools import cycle

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_lab.gpt import GPT, Config, batch, loss_of

CONFIG, TIME, STEPS, RATE = Config(), 32, 2, 0.1
# What is cut, and along which dimension of its weight: PyTorch stores (out, in).
DIMS = {"query": 0, "key": 0, "value": 0, "out": 1, "up": 0, "down": 1}
calls = []  # of the step: [collective, bytes of the whole tensor]

NAMES = "pipeline", "data", "tensor"  # the last one runs fastest
MICRO, ROWS = 4, 16
groups, sent = {}, Counter()  # by dimension: this rank's group, and the bytes it sends


def lay_out(device, world_size):
    """2 x 2 x 2 for eight ranks; other numbers go to tensor, pipeline, data in turn."""
    turn, factor = cycle(("tensor", "pipeline", "data")), 2
    sizes = dict.fromkeys(NAMES, 1)
    while world_size > 1:
        if world_size % factor:
            factor += 1
        else:
            sizes[next(turn)] *= factor
            world_size //= factor
    return init_device_mesh(device.type, tuple(sizes.values()), mesh_dim_names=NAMES)


def all_reduce(part, along):
    """Return a new tensor, the sum along one dimension of the mesh; count its bytes."""
    whole = part.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(whole, group=groups[along])  # this line's ranks hold the sum
    n = dist.get_world_size(groups[along])
    sent[along] += 2 * (n - 1) * part.nbytes // n  # as a ring sends them
    return whole


class Enter(torch.autograd.Function):
    """f: x is whole on every rank, and each share makes a part of x's gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)  # the same numbers; autograd wants a new tensor

    @staticmethod
    def backward(ctx, grad):
        return all_reduce(grad, "tensor")


class Leave(torch.autograd.Function):
    """g: each share makes a part of the sum; its gradient is whole on every rank."""

    @staticmethod
    def forward(ctx, part):
        return all_reduce(part, "tensor")

    @staticmethod
    def backward(ctx, grad):
        return grad


def share(name, tensor):
    """This rank's share of a parameter or a gradient; all of it, if it is not cut."""
    if (dim := DIMS.get(name.split(".")[-2])) is None:
        return tensor
    line = groups["tensor"]
    return tensor.chunk(dist.get_world_size(line), dim)[dist.get_rank(line)]


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


def check(step, part, expected, losses, truth):
    """Compare the loss, and every gradient with this rank's share of the whole one."""
    if part.is_last:
        mean = all_reduce(torch.stack(losses).mean().detach(), "data")
        mean /= dist.get_world_size(groups["data"])
        torch.testing.assert_close(mean, truth.detach(), msg=f"step {step}: the loss")
    whole = {name: p.grad for name, p in expected.named_parameters()}
    whole["head.weight"] = whole["tokens.weight"]  # one weight, two names
    for name, p in part.named_parameters():
        apart = (p.grad - share(name, whole[name])).abs().max()
        if not apart < 1e-12:
            raise AssertionError(f"step {step}: {name} is {apart:.0e} from the truth")


class Stage(nn.Module):
    """A stage: some of a GPT's modules, under the names that they have there."""

    def __init__(self, whole, stage, stages):
        super().__init__()
        start, stop = (n * len(whole.blocks) // stages for n in (stage, stage + 1))
        self.is_first, self.is_last = stage == 0, stage == stages - 1
        mine = {str(n): whole.blocks[n] for n in range(start, stop)}
        self.blocks = nn.ModuleDict(mine)
        ends = ["tokens", "positions"] * self.is_first + ["norm", "head"] * self.is_last
        for name in ends:
            self.add_module(name, getattr(whole, name))

    def forward(self, x):  # tokens; or (rows, time, width), from the left
        if self.is_first:
            x = self.tokens(x) + self.positions(torch.arange(x.size(1)).to(x.device))
        for block in self.blocks.values():
            x = block(x)
        return self.head(self.norm(x)) if self.is_last else x


def finish(part, ends):
    """Average the gradients along data; sum both uses of the tied weight."""
    for weight in part.parameters():
        turns = dist.get_world_size(groups["data"])
        weight.grad = all_reduce(weight.grad, "data") / turns
    if ends and (part.is_first or part.is_last):
        tied = part.tokens if part.is_first else part.head
        dist.all_reduce(tied.weight.grad, group=ends)  # both ends hold the sum


def join_ends(mesh):
    """Return the group of the first and the last rank of this rank's pipeline."""
    first = mesh.mesh.movedim(NAMES.index("pipeline"), 0)
    lines, mine = first.flatten(1).T.tolist(), None
    for line in lines:  # every rank makes every group, in the same order
        group = dist.new_group([line[0], line[-1]]) if len(line) > 1 else None
        mine = group if dist.get_rank() in line else mine
    return mine


class Passed(TorchDispatchMode):
    """Counts the bytes that the pipeline's schedule sends."""

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op.name() == "c10d::send":
            sent["pipeline"] += sum(tensor.nbytes for tensor in args[0])
        return op(*args, **(kwargs or {}))


class Saved:
    """A tensor that autograd saves; a storage counts once, and no weight does."""

    now, most, uses = 0, 0, Counter()

    def __init__(self, tensor):
        self.tensor, self.at = tensor, tensor.untyped_storage().data_ptr()
        self.size = tensor.untyped_storage().nbytes()
        Saved.now += self.size * (Saved.uses[self.at] == 0)
        Saved.uses[self.at] += 1
        Saved.most = max(Saved.most, Saved.now)

    def __del__(self):  # backward is through with it
        Saved.uses[self.at] -= 1
        Saved.now -= self.size * (Saved.uses[self.at] == 0)


def counted(part):
    """Count from here on what is sent, and what is kept for backward."""
    sent.clear()
    Saved.uses.clear()
    Saved.uses.update(p.untyped_storage().data_ptr() for p in part.parameters())
    Saved.now = Saved.most = 0
    return torch.autograd.graph.saved_tensors_hooks(Saved, lambda saved: saved.tensor)


def told(mesh):
    """Which ranks are in this rank's groups, and on how many nodes."""
    nodes = [None] * dist.get_world_size()
    # Every rank holds the number of each rank's node.
    dist.all_gather_object(nodes, int(os.environ["GROUP_RANK"]))
    ranks = {name: mesh[name].mesh.tolist() for name in NAMES}
    across = {name: len({nodes[r] for r in ranks[name]}) for name in NAMES}
    return {"at": mesh.get_coordinate(), "groups": ranks, "across": across}


def main(rank, world_size, device):
    # Ranks that share a GPU: gloo can send and receive only what is in host memory.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    mesh = lay_out(device, world_size)
    if CONFIG.heads % mesh["tensor"].size() or ROWS % (MICRO * mesh["data"].size()):
        raise SystemExit(f"{world_size} ranks cannot share 12 heads: try 2, 3, 4 or 8")
    groups.update({name: mesh.get_group(name) for name in NAMES})
    stage, turn = (mesh.get_local_rank(name) for name in ("pipeline", "data"))
    stages, turns = mesh["pipeline"].size(), mesh["data"].size()
    torch.manual_seed(0)  # every rank starts from one model
    expected = GPT(CONFIG).double().to(device)
    part = Stage(cut(copy.deepcopy(expected)), stage, stages)
    pipe = PipelineStage(part, stage, stages, device, group=groups["pipeline"])
    schedule = Schedule1F1B(pipe, MICRO, loss_fn=loss_of)
    ends = join_ends(mesh)
    sgd = torch.optim.SGD([*part.parameters(), *expected.parameters()], RATE)
    for step in range(STEPS):
        x, y = (tokens.to(device) for tokens in batch(step, ROWS, TIME))
        truth, losses = loss_of(expected(x), y), []
        truth.backward()
        # Ranks of a tensor group and of a pipeline get the same rows.
        mine, targets = (tokens.chunk(turns)[turn] for tokens in (x, y))
        with counted(part), Passed():
            inputs = [mine] if part.is_first else []
            schedule.step(*inputs, target=targets, losses=losses)
        finish(part, ends)
        cost = dict(sent)
        check(step, part, expected, losses, truth)
        sgd.step()
        sgd.zero_grad()
    held = sum(p.nbytes for p in part.parameters())
    at = tuple(mesh.get_coordinate())
    print(f"[rank {rank}] at {at}: loss and gradients as in one process", flush=True)
    return told(mesh) | {"held": held, "kept": Saved.most, "sent": cost}


# --- the same in every program: join the group, run main, leave whatever happens ---


@contextmanager
def process_group():
    """A GPU per rank over NCCL; else gloo, on a shared GPU or the CPU."""
    device, backend = torch.device("cpu"), "gloo"
    if count := torch.cuda.device_count():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % count)
        torch.cuda.set_device(device)
        if count >= int(os.environ["LOCAL_WORLD_SIZE"]):
            backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, device_id=device if "nccl" in backend else None)
    try:
        yield dist.get_rank(), dist.get_world_size(), device
    finally:
        dist.destroy_process_group()
        gc.collect()  # a leftover gloo object could abort the process at exit


@record
def run():
    with process_group() as (rank, world_size, device):
        if facts := main(rank, world_size, device):
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    run()
