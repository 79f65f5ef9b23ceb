"""One of 1,024 ranks, and no other exists: shapes and bytes are real, sums are not.

    torchrun --standalone --nproc-per-node 2 ddp_lab/scale/thousand.py

    [rank 1] as rank 512 of 1024: ... bytes along data, ... along tensor

Written by notebooks/21_all_at_once.ipynb.
"""

import json
import os
from collections import Counter
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
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
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_lab.gpt import GPT, Config, batch

WORLD, TENSOR = 1024, 8
CONFIG = Config(vocab=1024, context=128, layers=2, heads=16, width=1024)
TIME = 32


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
        self.sizes = dict(zip(mesh.mesh_dim_names, mesh.shape, strict=True))
        self.made, self.sent = Counter(), Counter()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if DTensor in types:
            return NotImplemented
        if "c10d" in op.namespace and (along := self.names.get(group_of(args))):
            kinds = ("all_reduce", "reduce_scatter", "gather")
            kind = next(kind for kind in kinds if kind in op.name())
            whole = max(a.nbytes for a in args if isinstance(a, torch.Tensor))
            n = self.sizes[along]
            self.made[f"{kind} {along}"] += 1
            # As a ring sends them: each part to all ranks but one; a sum does it twice.
            self.sent[along] += (1 + (kind == "all_reduce")) * (n - 1) * whole // n
        return op(*args, **(kwargs or {}))


def group_of(args):
    """The name of a call's group: fully_shard passes the group, DTensor its name."""
    boxed = [arg for arg in args if isinstance(arg, torch.ScriptObject)]
    return dist.ProcessGroup.unbox(boxed[0]).group_name if boxed else args[-1]


@contextmanager
def pretend(rank, world_size):
    """Join a world of which this process is all that there is; no call waits."""
    store = FakeStore()
    dist.init_process_group("fake", rank=rank, world_size=world_size, store=store)
    try:
        yield rank, world_size
    finally:
        dist.destroy_process_group()


def expected_bytes(data, rows):
    """What a rank sends along each dimension, in float32, with rings."""
    width, layers = CONFIG.width, CONFIG.layers
    block = 12 * width**2 // TENSOR + 4 * width  # norms are on every rank
    root = CONFIG.vocab * width // TENSOR + (CONFIG.context + 2) * width
    # Gathered forward and backward, the root once; and each gradient is scattered.
    gathered = 4 * (3 * layers * block + 2 * root)
    activation = 4 * rows * TIME * width
    # Two sums a layer, there and back; embedding, head; three numbers a token in loss.
    summed = (4 * layers + 2) * activation + 3 * 4 * rows * TIME
    sent = {"data": (data - 1) * gathered // data}
    return sent | {"tensor": 2 * (TENSOR - 1) * summed // TENSOR}


@record
def main():
    me, players = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    with pretend(me * WORLD // players, WORLD) as (rank, world_size):
        names, shape = ("data", "tensor"), (world_size // TENSOR, TENSOR)
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
        one = torch.ones(1)
        dist.all_reduce(one)  # as many ones as there are ranks?
        net = cut(GPT(CONFIG), mesh, shared_input())
        rows = batch(0, size=1, time=TIME)
        with ByGroup(mesh) as step:
            gradients(net, *rows)
        held = sum(p.to_local().numel() for p in net.parameters())
        made, sent = dict(step.made), dict(step.sent)
    if sent != (truth := expected_bytes(WORLD // TENSOR, rows=1)):
        raise AssertionError(f"sends {sent}, expected {truth}")
    told = ", ".join(f"{sent[along]} bytes along {along}" for along in sent)
    print(f"[rank {me}] as rank {rank} of {world_size}: {told}", flush=True)
    facts = {"made": made, "sent": sent, "held": held, "one": one.item()}
    print(json.dumps(facts | {"rank": rank}), flush=True)


# --- the same in every program: join the group, run main, leave whatever happens ---


if __name__ == "__main__":
    main()
