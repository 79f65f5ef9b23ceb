"""Exercise: the recipe for a model with a buffer, a loss method and uneven batches.

Once the four functions are written, they are compared with one process, and resumed on
another number of ranks. Until then:

    [rank 0] not yet
"""

import json
import random
import threading
import warnings
import weakref
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import (  # noqa: F401, for build()
    StateDictOptions,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp import (  # noqa: F401, for build()
    FSDPModule,
    fully_shard,
    register_fsdp_forward_method,
)
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode

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
    return None  # the cell's function stands here


def step(model, optimizer, micro_batches):
    return None  # the cell's function stands here


def save(model, optimizer, done, folder, group):
    return None  # the cell's function stands here


def load(model, optimizer, folder):
    return None  # the cell's function stands here


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


class Memory(TorchDispatchMode):
    """Keeps the most bytes of new tensors that were there at once."""

    def __init__(self, old):
        super().__init__()
        self.old, self.new, self.most = {t.data_ptr() for t in old}, {}, 0

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if DTensor in types:
            return NotImplemented  # first DTensor turns it into work on local parts
        out = op(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and not out.is_meta:
            memory = out.untyped_storage()
            if memory.data_ptr() not in self.old:
                self.new[memory.data_ptr()] = weakref.ref(memory)
            there = [memory() for memory in self.new.values()]
            self.most = max(self.most, sum(m.nbytes() for m in there if m))
        return out


def built(mesh):
    """Call build, and look at what it has made."""
    weights = OneProcess(mesh.device_type).model.state_dict()
    size = sum(w.nbytes for name, w in weights.items() if name != "head.weight")
    Scorer.built_on.clear()
    with Memory(weights.values()) as memory:
        made = build(mesh, weights if mesh.get_rank() == 0 else {})
    if made is None:
        return None
    if Scorer.built_on != ["meta"]:
        raise AssertionError(f"Scorer was built on {Scorer.built_on}, expected meta")
    if not all(isinstance(p, DTensor) for p in made[0].parameters()):
        raise AssertionError("a weight is not sharded")
    if not all(isinstance(block, FSDPModule) for block in made[0].blocks):
        raise AssertionError("a block is not a group")
    most = torch.tensor(memory.most if mesh.get_rank() else 0)  # rank 0 is given all
    dist.all_reduce(most, dist.ReduceOp.MAX)
    if most >= size:  # the head's weight is the token weight: counted once
        told = f"build held {most:,} bytes at once on a rank that is not 0"
        raise AssertionError(f"{told}, and all weights have {size:,}")
    return made


def saved(made, folder, group):
    """Call save, and let no file be written before it has returned."""
    write, returned, waited = dcp.FileSystemWriter.write_data, threading.Event(), []

    def wait_and_write(*args):
        waited.append(not returned.wait(10))
        return write(*args)

    dcp.FileSystemWriter.write_data = wait_and_write
    future = save(*made, SAVED_AFTER, folder, group)
    returned.set()
    dcp.FileSystemWriter.write_data = write
    if any(waited):
        raise AssertionError("save did not return before the files were written")
    return future


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
            if (future := saved(made, folder, group)) is None:
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
