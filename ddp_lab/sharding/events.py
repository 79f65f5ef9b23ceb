"""Write down when each group is gathered, used, reduced and freed, in one step.

    torchrun --standalone --nproc-per-node 2 ddp_lab/sharding/events.py

Written by notebooks/16_fully_shard.ipynb.
"""

import gc
import json
import os
import warnings
from contextlib import contextmanager

import torch
import torch.distributed as dist
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


class Events(TorchDispatchMode):
    """Keeps what happens, to which group, and which groups are gathered just then."""

    def __init__(self, model):
        super().__init__()
        self.made, self.groups = [], [model.norm, *model.blocks]  # norm is the root's
        # A group's message: this rank's shards, one behind the other.
        rows = [[p.to_local().flatten() for p in g.parameters()] for g in self.groups]
        self.shards = [torch.cat(shards) for shards in rows]
        for i, block in enumerate(model.blocks, start=1):
            block.mlp.register_forward_hook(lambda *_, i=i: self.add("F", i))
            block.mlp.register_full_backward_hook(lambda *_, i=i: self.add("B", i))

    def add(self, what, group):
        # A gathered weight is an ordinary tensor; otherwise it is a DTensor.
        first = [next(other.parameters()) for other in self.groups]
        gathered = [i for i, p in enumerate(first) if not isinstance(p, DTensor)]
        self.made.append(f"{what}{group}:{''.join(map(str, gathered))}")

    def __torch_dispatch__(self, call, types, args=(), kwargs=None):
        if "allgather" in call.name():
            sent = [torch.equal(args[1], shards) for shards in self.shards]
            self.add("G", sent.index(True) if any(sent) else 0)
        elif "reduce_scatter" in call.name():
            last = self.made[-1]  # whose backward has just run; after all, the root's
            self.add("R", int(last[1]) if last[0] == "B" else 0)
        return call(*args, **(kwargs or {}))


def diary(model, mesh, x, y):
    with Events(model) as events:
        loss_of(model(x), y).backward()
    check(model, whole(mesh))
    return " ".join(events.made)


def look_ahead(model):
    """Let each block gather the next one's weights before it computes."""
    for block, following in zip(model.blocks, model.blocks[1:], strict=False):
        block.set_modules_to_forward_prefetch([following])


def try_out(mesh, *rows):
    models = [shard(build(mesh), mesh) for _ in range(2)]
    models.append(shard(build(mesh), mesh, reshard_after_forward=False))
    look_ahead(models[1])
    diaries = [diary(model, mesh, *rows) for model in models]
    for made, expected in zip(diaries, orders(len(models[0].blocks)), strict=True):
        if [now[:2] for now in made.split()] != expected.split():
            raise AssertionError(f"{made}, expected {expected}")
    return dict(zip(("default", "ahead", "kept"), diaries, strict=True))


def orders(n):
    """What should happen, with n blocks: by default, looking ahead, and kept."""
    ups, downs = range(1, n + 1), range(n, 0, -1)
    gathers = [f"G{i - 1} " * (i > 1) for i in downs]  # of the next block backward
    works = [f"B{i} R{i}" for i in downs]
    back = [gather + work for gather, work in zip(gathers, works, strict=True)]
    plain = ["G0", *(f"G{i} F{i}" for i in ups)]
    ahead = ["G0 G1", *(f"G{i + 1} F{i}" for i in ups[:-1]), f"F{n}"]
    ways = [*plain, f"G{n}", *back], [*ahead, f"G{n}", *back], [*plain, *works]
    return [" ".join([*way, "R0"]) for way in ways]


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
