"""Exercise: predict how many blocks fit into a number of bytes on each rank.

    torchrun --standalone --nproc-per-node 2 ddp_lab/sharding/exercise_budget.py

Once `most_blocks` is written, models take a step and their bytes are counted; these are
the budgets. Until then:

    [rank 0] not yet

Written by notebooks/16_fully_shard.ipynb.
"""

import functools
import gc
import json
import os
import random
import warnings
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint

from ddp_lab.gpt import GPT, Config, batch, loss_of

WAYS = "default", "kept", "recomputed"

# The logits are a view; a warning says not to change them in place, and we do not.
warnings.filterwarnings("ignore", "FSDP2-wrapped module")


def most_blocks(budget, way, sizes, world_size):
    """Return the most blocks whose step fits into budget bytes on each rank.

    way is "default", "kept" (reshard_after_forward=False) or "recomputed" (as above);
    always in float32, with Adam. sizes has bytes. "block" and "rest" are the weights of
    one block and of the root. "activations of a block", "activations of the rest" and
    "input of a block" are what autograd keeps of this rank's rows; a recomputed block
    keeps its input only. At least one block fits.
    """
    return None  # your code here


def build(blocks, way="default", mesh=None):
    """A GPT of so many blocks, recomputed and sharded if need be."""
    torch.manual_seed(0)
    model = GPT(Config(layers=blocks, context=24))  # what 2, 3 and 4 ranks can share
    for block in model.blocks:
        if way == "recomputed":
            block.forward = functools.partial(
                checkpoint, block.forward, use_reentrant=False
            )
        if mesh:
            fully_shard(block, mesh=mesh, reshard_after_forward=way != "kept")
    return fully_shard(model, mesh=mesh) if mesh else model


def local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


class Watch(torch.autograd.graph.saved_tensors_hooks):
    """Counts what autograd keeps, and at each such moment the gathered weights."""

    def __init__(self, model):
        super().__init__(self.keep, self.give)
        self.model, self.kept, self.gathered = model, {}, 0

    def look(self):
        plain = [p for p in self.model.parameters() if not isinstance(p, DTensor)]
        self.gathered = max(self.gathered, sum(p.nbytes for p in plain))
        return {p.untyped_storage().data_ptr() for p in plain}

    def keep(self, tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self.look():  # a weight is no activation
            self.kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    def give(self, tensor):
        self.look()
        return tensor


def cost(model, x, y):
    """Take a step; return the bytes of states, activations and gathered weights."""
    optimizer, watch = torch.optim.Adam(model.parameters()), Watch(model)
    with watch:
        loss = loss_of(model(x), y)
    loss.backward()
    optimizer.step()
    weights = list(model.parameters())
    states = [t for w in weights for t in optimizer.state[w].values() if t.ndim]
    tensors = [*weights, *(w.grad for w in weights), *states]
    held = sum(local(tensor).nbytes for tensor in tensors)
    return held, sum(watch.kept.values()), watch.gathered


def measured_sizes(x, y):
    """What one more block adds to an uncut model, and what is there without any."""
    one, two = build(1), build(2)
    block, rest = (sum(w.nbytes for w in net.parameters()) for net in (two, one))
    _, kept_1, _ = cost(one, x, y)
    _, kept_2, _ = cost(two, x, y)
    _, again_1, _ = cost(build(1, "recomputed"), x, y)
    _, again_2, _ = cost(build(2, "recomputed"), x, y)
    block -= rest
    return {
        "block": block,
        "rest": rest - block,
        "activations of a block": kept_2 - kept_1,
        "activations of the rest": 2 * kept_1 - kept_2,
        "input of a block": again_2 - again_1,
    }


def take_step(blocks, way, mesh):
    """Take a step with so many blocks; return its bytes, and the sizes of its parts."""
    time = random.Random(blocks).choice((6, 12, 24))  # the same on every rank
    x, y = (t.chunk(mesh.size())[mesh.get_rank()] for t in batch(0, 12, time))
    return sum(cost(build(blocks, way, mesh), x, y)), measured_sizes(x, y)


def check(way, blocks, times, mesh):
    """Ask with just the bytes that a model takes, and with one byte less."""
    budget, sizes = take_step(blocks, way, mesh)
    # Of a model whose numbers are so many times as large, and which nobody can run.
    budget, sizes = times * budget, {kind: times * n for kind, n in sizes.items()}
    for missing in (0, 1):
        room = budget - missing
        answer = most_blocks(room, way, dict(sizes), mesh.size())
        if answer is not None and answer != blocks - missing:
            told = f"{room} bytes, {way}: {answer} blocks, expected {blocks - missing}"
            raise AssertionError(f"{told}; {blocks} blocks took {budget}")
    return answer, budget, sizes


def main(rank, world_size, device):
    if world_size > 4:
        raise ValueError(f"{world_size} ranks are too many for this exercise, take 4")
    mesh = dist.init_device_mesh("cpu", (world_size,))  # bytes are the same anywhere
    drawn = [random.sample((2, 3, 4, 5), len(WAYS)), random.randrange(2, 9)]
    dist.broadcast_object_list(drawn, src=0)  # all ranks now run as many blocks
    for way, blocks in zip(WAYS, drawn[0], strict=True):
        answer, budget, sizes = check(way, blocks, drawn[1], mesh)
        if answer is None:
            print(f"[rank {rank}] not yet", flush=True)
            told = {"solved": False, "budget": budget, "sizes": sizes}
            print(json.dumps(told), flush=True)
            dist.barrier()  # to leave now would cut off those that are still joining
            return None
        print(f"[rank {rank}] {way}: {blocks} blocks take {budget} bytes", flush=True)
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
