"""Tensor, data and pipeline parallel in one program, equal to one process.

    torchrun --standalone --nproc-per-node 8 ddp_lab/scale/three_d.py

    [rank 5] at (1, 0, 1): holds 12.6% of the model, gradients as in one process

Written by notebooks/21_choose_a_layout.ipynb.
"""

import copy
import gc
import json
import logging
import os
import warnings
from collections import Counter
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ddp_lab.gpt import GPT, batch, loss_of

NAMES = "pipeline", "data", "tensor"  # the last one runs fastest

MOST = 0.5  # the largest norm that all gradients together may have

SHAPES = {2: (2, 1, 1), 3: (1, 3, 1), 4: (1, 2, 2), 6: (2, 1, 3), 8: (2, 2, 2)}
STEPS, RATE, MICRO_BATCHES, BATCH, TIME = 3, 0.1, 4, 24, 24


def plan():
    """Say how each module is cut; between them, positions are: Shard(1)."""
    gathered = PrepareModuleInput(
        input_layouts=Shard(1), desired_input_layouts=Replicate()
    )
    scattered = RowwiseParallel(output_layouts=Shard(1))
    ids, whole = {"input_layouts": Replicate()}, {"output_layouts": Replicate()}
    return {
        "tokens": RowwiseParallel(**ids, output_layouts=Shard(1)),
        "positions": RowwiseParallel(**ids, output_layouts=Shard(0)),
        "blocks.*.norm1": SequenceParallel(),
        "blocks.*.attention": gathered,
        "blocks.*.attention.query": ColwiseParallel(),
        "blocks.*.attention.key": ColwiseParallel(),
        "blocks.*.attention.value": ColwiseParallel(),
        "blocks.*.attention.out": scattered,
        "blocks.*.norm2": SequenceParallel(),
        "blocks.*.mlp": gathered,
        "blocks.*.mlp.up": ColwiseParallel(),
        "blocks.*.mlp.down": scattered,
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), **whole),
    }


class Part(nn.Module):
    """The layers of one stage, under the names that they have in the whole model."""

    def __init__(self, whole, place, places):
        super().__init__()
        first, end = (p * len(whole.blocks) // places for p in (place, place + 1))
        mine = {str(n): whole.blocks[n] for n in range(first, end)}
        self.blocks = nn.ModuleDict(mine)
        if place == 0:
            self.tokens, self.positions = whole.tokens, whole.positions
        if place == places - 1:
            self.norm, self.head = whole.norm, whole.head

    def forward(self, x):  # token ids, or what the stage before passes on
        if hasattr(self, "tokens"):
            places = torch.arange(x.size(1), device=x.device)
            x = self.tokens(x) + self.positions(places)  # (batch, time / tensor, width)
        for block in self.blocks.values():
            x = block(x)
        return self.head(self.norm(x)) if hasattr(self, "head") else x


def cut(model, mesh, device):
    """Cut a model along each dimension of the mesh; return this rank's stage."""
    place, places = mesh["pipeline"].get_local_rank(), mesh["pipeline"].size()
    part = Part(model, place, places)  # the layers of this stage
    styles = {k: v for k, v in plan().items() if hasattr(part, k.split(".")[0])}
    parallelize_module(part, mesh["tensor"], styles)
    for module in (*part.blocks.values(), part):
        # Gathered once in a step, and not for each micro-batch.
        fully_shard(module, mesh=mesh["data"], reshard_after_forward=False)
    group = mesh.get_group("pipeline")
    return PipelineStage(part, place, places, device, group=group)


def step(schedule, stage, mesh, x, y):
    """Leave the gradients of this rank's stage, of its samples of the batch."""
    turn, turns = mesh["data"].get_local_rank(), mesh["data"].size()
    mine, targets = (tokens.chunk(turns)[turn] for tokens in (x, y))
    schedule.step(*([mine] if stage.is_first else []), target=targets)


def clip(part, pipeline):
    """Scale the gradients by the norm of the whole model's, all stages' together."""
    norm = nn.utils.get_total_norm([p.grad for p in part.parameters()])
    square = norm.full_tensor() ** 2
    dist.all_reduce(square, group=pipeline)  # every stage holds the sum
    nn.utils.clip_grads_with_norm_(part.parameters(), MOST, square.sqrt())


def quiet(device):
    """Silence advice about speed; return the device that the mesh is on."""
    logging.disable(logging.WARNING)  # of two sums in a row, in a norm
    warnings.filterwarnings("ignore", "FSDP2-wrapped module")  # of logits as a view
    # Ranks that share a GPU: gloo can send and receive only what is in host memory.
    return torch.device("cpu") if dist.get_backend() == "gloo" else device


def check(number, part, expected):
    """Compare each gradient of this stage, put together, with that of one process."""
    for name, p in part.named_parameters():
        whole = p.grad.full_tensor()  # every rank of the stage now holds all of it
        apart = (whole - expected.get_parameter(name).grad).abs().max()
        if not apart < 1e-12:
            told = f"{name} is {apart:.0e} from the reference"
            raise AssertionError(f"step {number}: {told}")


def share(part, expected):
    """Return which share of the whole model's numbers this rank holds."""
    mine = sum(p.to_local().numel() for p in part.parameters())
    return mine / sum(p.numel() for p in expected.parameters())


def lines_of(mesh):
    """Say who is in this rank's groups, and on how many nodes each group is."""
    groups = {name: mesh[name].mesh.tolist() for name in NAMES}
    per_node = int(os.environ["LOCAL_WORLD_SIZE"])  # torchrun numbers node by node
    across = {name: len({r // per_node for r in groups[name]}) for name in NAMES}
    return {"groups": groups, "across": across}


class Sent(TorchDispatchMode):
    """Adds up the bytes that a rank sends along each dimension, as rings send them."""

    def __init__(self, mesh):
        super().__init__()
        groups = {name: mesh.get_group(name) for name in mesh.mesh_dim_names}
        self.sizes = {name: group.size() for name, group in groups.items()}
        self.names = {group.group_name: name for name, group in groups.items()}
        self.bytes = Counter()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if "DTensor" in {kind.__name__ for kind in types}:
            return NotImplemented
        along = self.names.get(group_of(args)) if "c10d" in op.namespace else None
        if along:
            self.bytes[along] += ring(op.name(), args, self.sizes[along])
        return op(*args, **(kwargs or {}))


def group_of(args):
    """The name of a call's group: fully_shard passes the group, DTensor its name."""
    boxed = [arg for arg in args if isinstance(arg, torch.ScriptObject)]
    group = dist.ProcessGroup.unbox(boxed[0]).group_name if boxed else args[-1]
    return group if isinstance(group, str) else None


def ring(call, args, n):
    """Bytes that one of n ranks sends in a call, if each passes parts to the next."""
    size = max(t.nbytes for t in tree_leaves(args) if isinstance(t, torch.Tensor))
    if "send" in call or "recv" in call:
        return size * ("send" in call)
    if "all_gather_into" in call:
        size *= n  # it is given this rank's part
    return (1 + ("all_reduce" in call)) * (n - 1) * size // n


def main(rank, world_size, device):
    device = quiet(device)
    if not (shape := SHAPES.get(world_size)):
        raise SystemExit(f"no mesh for {world_size} ranks: try 2, 3, 4, 6 or 8")
    mesh = init_device_mesh(device.type, shape, mesh_dim_names=NAMES)
    torch.manual_seed(0)  # every rank starts from one model
    expected = GPT().double().to(device)
    expected.head.weight = nn.Parameter(expected.head.weight.detach().clone())
    stage = cut(copy.deepcopy(expected), mesh, device)
    part, pipeline = stage.submod, mesh.get_group("pipeline")
    schedule = Schedule1F1B(stage, MICRO_BATCHES, loss_fn=loss_of)
    sgds = [torch.optim.SGD(net.parameters(), RATE) for net in (part, expected)]
    for number in range(STEPS):
        x, y = (tokens.to(device) for tokens in batch(number, BATCH, TIME))
        with Sent(mesh) as sent:
            step(schedule, stage, mesh, x, y)
        clip(part, pipeline)
        loss_of(expected(x), y).backward()
        nn.utils.clip_grad_norm_(expected.parameters(), MOST)
        check(number, part, expected)
        for sgd in sgds:  # one for DTensors, one for plain tensors
            sgd.step()
            sgd.zero_grad()
    at = tuple(mesh.get_coordinate())
    held = share(part, expected)
    end = f"holds {held:.1%} of the model, gradients as in one process"
    print(f"[rank {rank}] at {at}: {end}", flush=True)
    return {"at": at, "held": held, "sent": dict(sent.bytes)} | lines_of(mesh)


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
