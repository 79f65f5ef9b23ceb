"""Exercise: the recipe for a model with a buffer, a loss method and uneven batches.

    torchrun --standalone --nproc-per-node 3 ddp_lab/sharding/exercise_recipe.py

Once the four functions are written, they are compared with one process, and resumed on
another number of ranks. Until then:

    [rank 0] not yet

Written by notebooks/16_fully_shard.ipynb.
"""

import gc
import json
import os
import random
import warnings
from contextlib import contextmanager
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

from ddp_lab.gpt import GPT, batch

RATE, LIMIT, STEPS, SAVED_AFTER = 1e-2, 1.0, 4, 2


class Scorer(GPT):
    """Scores text: call loss(x, y), never forward."""

    built_on: list[str] = []  # the devices of all that were built

    def __init__(self):
        super().__init__()
        self.positions = None
        self.register_buffer("waves", waves(), persistent=False)
        self.built_on.append(self.head.weight.device.type)

    def fill_buffers(self):
        self.waves.copy_(waves())

    def loss(self, x, y):  # (rows, time), twice
        hidden = self.tokens(x) + self.waves[: x.size(1)]
        for block in self.blocks:
            hidden = block(hidden)
        logits = F.linear(self.norm(hidden), self.head.weight)
        return F.cross_entropy(logits.flatten(0, 1), y.flatten())

    def forward(self, tokens):
        raise NotImplementedError("call loss(x, y)")


def waves(time=32, width=96):
    angles = torch.arange(time)[:, None] * 10000 ** -(torch.arange(0, width, 2) / width)
    return torch.cat([angles.sin(), angles.cos()], dim=-1)  # (time, width)


def build(mesh, weights):
    """Return Scorer() built on meta and sharded by block, and its optimizer.

    weights: the whole state_dict on rank 0, and {} on the others.
    optimizer: torch.optim.AdamW with lr=RATE.
    """
    return None  # your code here


def step(model, optimizer, micro_batches):
    """Take one step, with the gradient of the mean loss over all rows of all ranks.

    micro_batches: pairs (x, y) of len(x) rows, which differ; as many on every rank.
    model.loss(x, y) is the mean over its rows. Clip all gradients to a norm of LIMIT.
    Return the mean loss over this rank's rows, and the norm before clipping: numbers.
    """
    return None  # your code here


def save(model, optimizer, done, folder, group):
    """Save model, optimizer and done, by these names, and return at once: a future.

    What is in them has the plain model's names. The thread that writes uses group.
    """
    return None  # your code here


def load(model, optimizer, folder):
    """Load what save has saved, on any number of ranks; return done."""
    return None  # your code here


class OneProcess:
    """The uncut model and its optimizer, in this process alone."""

    def __init__(self, kind):
        torch.manual_seed(0)
        self.model = Scorer().to(kind)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=RATE)

    def step(self, x, y):
        loss = self.model.loss(x, y)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), LIMIT)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item(), norm.item()

    def state(self, done=0):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "done": done}

    def load(self, folder):
        state = self.state()
        dcp.load(state, checkpoint_id=folder, no_dist=True)
        parts = {"model_state_dict": state["model"]}
        parts["optim_state_dict"] = state["optimizer"]
        set_state_dict(self.model, self.optimizer, **parts)
        return state["done"]


def data(mesh, number, sizes):
    """Return this rank's micro-batches of a step, and all ranks' rows at once."""
    ranks, rank, kind = mesh.size(), mesh.get_rank(), mesh.device_type
    pairs = [batch(10 * number + i, size * ranks) for i, size in enumerate(sizes)]
    pairs = [[tensor.to(kind) for tensor in pair] for pair in pairs]
    mine = [tuple(tensor.chunk(ranks)[rank] for tensor in pair) for pair in pairs]
    return mine, [torch.cat(tensors) for tensors in zip(*pairs, strict=True)]


def one_process(mesh, sizes, folder):
    """Train it without a stop; rank 0 saves it; return its losses and norms."""
    one, told = OneProcess(mesh.device_type), []
    for number in range(STEPS):
        told.append(one.step(*data(mesh, number, sizes)[1]))
        if number + 1 == SAVED_AFTER and mesh.get_rank() == 0:
            dcp.save(one.state(SAVED_AFTER), checkpoint_id=folder, no_dist=True)
    return told


def built(mesh):
    """Call build, and look at what it has made."""
    weights = OneProcess(mesh.device_type).model.state_dict()
    Scorer.built_on.clear()
    if (made := build(mesh, weights if mesh.get_rank() == 0 else {})) is None:
        return None
    if Scorer.built_on != ["meta"]:
        raise AssertionError(f"Scorer was built on {Scorer.built_on}, expected meta")
    if not all(isinstance(p, DTensor) for p in made[0].parameters()):
        raise AssertionError("a weight is not sharded")
    if not all(isinstance(block, FSDPModule) for block in made[0].blocks):
        raise AssertionError("a block is not a group")
    return made


def same(what, got, expected):
    """Refuse numbers that are off by more than float32's rounding, or none at all."""
    for name, number, right in zip(("loss", "norm"), got, expected, strict=True):
        if not abs(number / right - 1) < 1e-3:
            raise AssertionError(f"{what}: {name} {number:.4f}, expected {right:.4f}")


def try_step(what, made, mine, expected):
    """Call step, and compare; return whether it is written."""
    if (told := step(*made, mine)) is None:
        return False
    loss = torch.tensor(float(told[0]))
    dist.all_reduce(loss)  # every rank holds as many rows: their mean is the whole one
    same(what, (loss.item() / dist.get_world_size(), float(told[1])), expected)
    return True


def trained(mesh, sizes, folder, truth):
    """Train and save with the learner's functions; return whether they are written."""
    made, group = built(mesh), dist.new_group(backend="gloo")
    if made is None:
        return False
    future = None
    for number in range(STEPS):
        mine = data(mesh, number, sizes)[0]
        if not try_step(f"step {number + 1}", made, mine, truth[number]):
            return False
        if number + 1 == SAVED_AFTER:
            if (future := save(*made, SAVED_AFTER, folder, group)) is None:
                return False
    future.result()  # the steps after it must not be in the folder
    dist.barrier()  # nor does a rank read before all have written
    one = OneProcess(mesh.device_type)
    if (done := one.load(folder)) != SAVED_AFTER:
        raise AssertionError(f"done is {done} in the folder, expected {SAVED_AFTER}")
    for number in range(SAVED_AFTER, STEPS):
        told = one.step(*data(mesh, number, sizes)[1])
        same(f"saved, step {number + 1} of one process", told, truth[number])
    return True


def resumed(mesh, sizes, folder, truth):
    """Resume what one process has saved; return whether load is written."""
    made = built(mesh)
    if (done := load(*made, folder)) is None:
        return False
    if done != SAVED_AFTER:
        raise AssertionError(f"load returned {done}, expected {SAVED_AFTER}")
    for number in range(SAVED_AFTER, STEPS):
        mine = data(mesh, number, sizes)[0]
        try_step(f"resumed, step {number + 1}", made, mine, truth[number])
    return True


def main(rank, world_size, device):
    # The logits are a view; a warning says not to change them in place. We do not.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module")
    warnings.filterwarnings("ignore", "torch.distributed is disabled")  # for no_dist
    kind = "cpu" if dist.get_backend() == "gloo" else device.type
    mesh = dist.init_device_mesh(kind, (world_size,))
    with TemporaryDirectory() as own:
        # Rows of each micro-batch on each rank; all ranks must hold the same numbers.
        given = [random.sample([1, 2, 3, 5], 3), own]
        dist.broadcast_object_list(given, src=0)
        sizes, folder = given
        truth = one_process(mesh, sizes, f"{folder}/one")
        solved = trained(mesh, sizes, f"{folder}/saved", truth)
        solved = solved and resumed(mesh, sizes, f"{folder}/one", truth)
        dist.barrier()  # all have read; the folder may go
    if not solved:
        print(f"[rank {rank}] not yet", flush=True)
        print(json.dumps({"solved": False}), flush=True)
        return None
    print(f"[rank {rank}] as one process; resumed by 1 and by {world_size}", flush=True)
    return {"solved": True}


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
