"""Exercise: say which units of a ZeRO-3 stay whole between forward and backward.

    torchrun --standalone --nproc-per-node 2 ddp_lab/sharding/exercise_stay.py

Fill in stay(), and the ranks count what they really gather. Until then:

    [rank 0] not yet

Written by notebooks/15_sharding.ipynb.
"""

import gc
import itertools
import json
import os
import random
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record

from ddp_lab.gpt import GPT, Config, batch, loss_of

BLOCKS = [2, 3, 1, 2, 1]  # in each unit
CONFIG = Config(layers=sum(BLOCKS), width=48, context=16)


def stay(unit_bytes, room):
    """Say which units stay whole from their forward to their backward.

    unit_bytes: bytes of each unit's weights, in the order of forward. room: so many
    bytes of weights may be whole at one moment; each unit alone fits. A unit that does
    not stay is freed after its forward, and gathered again for its backward; after
    that, every unit is freed. Return a True or False for each unit, so that as few
    bytes as possible are gathered again.
    """
    return None  # your code here


def most(unit_bytes, keep):
    """Bytes whole at most: a unit that works, and those before it that stay."""
    kept = [size * stays for size, stays in zip(unit_bytes, keep, strict=True)]
    return max(sum(kept[:i]) + size for i, size in enumerate(unit_bytes))


def least(unit_bytes, room):
    """The truth, by brute force: the fewest bytes to gather a second time."""
    fits = [
        sum(size for size, stays in zip(unit_bytes, keep, strict=True) if not stays)
        for keep in itertools.product([False, True], repeat=len(unit_bytes))
        if most(unit_bytes, keep) <= room
    ]
    return min(fits)


def ask_about(unit_bytes, room):
    """Return what stay() answers; raise if it takes or sends too much."""
    keep = [bool(each) for each in stay(list(unit_bytes), room)]
    case = f"units of {unit_bytes} bytes, room {room}, {keep}"
    if len(keep) != len(unit_bytes) or most(unit_bytes, keep) > room:
        raise AssertionError(f"{case}: does not fit")
    pairs = zip(unit_bytes, keep, strict=True)
    again = sum(size for size, stays in pairs if not stays)
    if again != (expected := least(unit_bytes, room)):
        raise AssertionError(f"{case}: {again} gathered again, expected {expected}")
    return keep


class Unit:
    """Some blocks, whole from gather() to free(); it counts what is gathered."""

    whole = peak = gathered = 0

    def __init__(self, blocks):
        self.weights = [w for block in blocks for w in block.parameters()]
        self.made, n = 0, dist.get_world_size()
        row = torch.cat([w.detach().flatten() for w in self.weights])
        self.row = F.pad(row, (0, -len(row) % n))
        sizes = [w.numel() for w in self.weights]
        pieces = self.row[: sum(sizes)].split(sizes)
        for w, piece in zip(self.weights, pieces, strict=True):
            w.data = piece.view_as(w)
            w.register_post_accumulate_grad_hook(self.reduce)
        self.part = nn.Parameter(self.row.chunk(n)[dist.get_rank()].clone())
        self.row.untyped_storage().resize_(0)

    def gather(self, *_):
        if self.row.untyped_storage().nbytes():
            return  # it has stayed
        self.row.untyped_storage().resize_(self.row.nbytes)
        dist.all_gather_into_tensor(self.row, self.part.detach())
        Unit.gathered += self.row.nbytes
        Unit.whole += self.row.nbytes
        Unit.peak = max(Unit.peak, Unit.whole)

    def free(self, *_):
        self.row.untyped_storage().resize_(0)
        Unit.whole -= self.row.nbytes

    def reduce(self, _):
        self.made += 1
        if self.made == len(self.weights):
            self.free()


def train_step(keep, rank, world_size, device):
    """One step, in which these units stay; check gradients, return what it took."""
    torch.manual_seed(0)
    model, expected = GPT(CONFIG).to(device), GPT(CONFIG).to(device)
    expected.load_state_dict(model.state_dict())
    tokens, targets = (each.to(device) for each in batch(0, 4, 16))
    ends = itertools.pairwise(itertools.accumulate(BLOCKS, initial=0))
    Unit.whole = Unit.peak = Unit.gathered = 0
    for (first, end), stays in zip(ends, keep, strict=True):
        blocks = model.blocks[first:end]
        unit = Unit(blocks)
        blocks[0].register_forward_pre_hook(unit.gather)
        blocks[-1].register_full_backward_pre_hook(unit.gather)
        if not stays:
            blocks[-1].register_forward_hook(unit.free)
    loss_of(model(tokens), targets).backward()
    loss_of(expected(tokens), targets).backward()
    for w, e in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(w.grad, e.grad, msg="a gradient is wrong")
    return Unit.peak, Unit.gathered


def main(rank, world_size, device):
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    block = sum(w.numel() for w in GPT(CONFIG).blocks[0].parameters())
    if block % world_size:
        raise ValueError(f"{world_size} ranks cannot share {block} numbers equally")
    unit_bytes, room = [4 * block * count for count in BLOCKS], 4 * block * 5
    if stay(list(unit_bytes), room) is None:
        print(f"[rank {rank}] not yet", flush=True)
        print(json.dumps({"solved": False, "units": unit_bytes}), flush=True)
        dist.barrier()  # to leave now would cut off those that are still joining
        return
    for _ in range(50):  # other units than these, drawn anew in each run
        drawn = [random.randrange(1, 10) for _ in range(random.randrange(3, 8))]
        ask_about(drawn, random.randrange(max(drawn), sum(drawn) + 1))
    keep = ask_about(unit_bytes, room)
    peak, gathered = train_step(keep, rank, world_size, device)
    again = gathered - sum(unit_bytes)
    told = f"at most {peak} bytes whole, {again} gathered again"
    print(f"[rank {rank}] {told}", flush=True)
    if peak > room or again != least(unit_bytes, room):
        raise AssertionError(f"{told}, expected {least(unit_bytes, room)} in {room}")
    return {"solved": True, "peak": peak, "again": again}


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
