"""ZeRO-2: a block's gradients are whole only until the last of them is made.

    torchrun --standalone --nproc-per-node 2 ddp_lab/sharding/zero2.py

Written by notebooks/15_sharding.ipynb.
"""

import gc
import json
import os
import socket
import struct
import sys
from contextlib import contextmanager, suppress

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record

from ddp_lab.gpt import GPT, batch, loss_of

RATE = 1e-3
SAMPLES, STEPS = 3, 3  # for each rank in a step


def flatten(tensors):
    """All numbers of tensors, and zeros behind them until n equal shards can be cut."""
    flat = torch.cat([tensor.detach().flatten() for tensor in tensors])
    return nn.functional.pad(flat, (0, -len(flat) % dist.get_world_size()))


def reduce_scatter(flat):
    """The mean over ranks of this rank's shard, and nothing of the other shards."""
    versions = torch.empty_like(flat)
    dist.all_to_all_single(versions, flat)  # here then: my shard, as each rank has it
    return versions.view(dist.get_world_size(), -1).mean(0)


class Unit:
    """Weights in one flat buffer, of which each rank owns a shard."""

    def __init__(self, weights):
        self.weights, sizes = weights, [w.numel() for w in weights]
        self.flat = flatten(weights)
        self.made = 0  # gradients, so far
        pieces = self.flat[: sum(sizes)].split(sizes)
        for w, piece in zip(weights, pieces, strict=True):
            w.data = piece.view_as(w)  # the weight is now a view of the buffer
            w.register_post_accumulate_grad_hook(self.reduce)  # its gradient is made
        mine = self.flat.chunk(dist.get_world_size())[dist.get_rank()]
        self.shard = nn.Parameter(mine)

    def reduce(self, _):
        self.made += 1
        if self.made % len(self.weights):
            return  # not the last one
        gradients = flatten([w.grad for w in self.weights])
        for w in self.weights:
            w.grad = None
        # Each rank ends up with the ranks' mean for its shard, and with no more.
        self.shard.grad = reduce_scatter(gradients)

    def gather(self):
        # Every rank ends up with all shards, each as its owner has updated it.
        dist.all_gather_into_tensor(self.flat, self.shard.detach())


class Zero:
    """Stage 2: weights are whole, gradients and Adam's state are sharded."""

    def __init__(self, model):
        self.model, blocks = model, model.blocks
        root = [w for name, w in model.named_parameters() if "blocks" not in name]
        self.units = [Unit(root), *(Unit([*block.parameters()]) for block in blocks)]
        self.adam = torch.optim.Adam([unit.shard for unit in self.units], RATE)

    def step(self, tokens, targets):
        loss_of(self.model(tokens), targets).backward()  # reduces, unit by unit
        self.adam.step()
        self.adam.zero_grad()
        for unit in self.units:
            unit.gather()


def ways():
    return {2: Zero}


def held(way):
    """Bytes of weights, gradients and Adam's state here now; a storage counts once."""
    weights = [*way.model.parameters(), *way.adam.param_groups[0]["params"]]
    gradients = [w.grad for w in weights if w.grad is not None]
    state = [t for each in way.adam.state.values() for t in each.values() if t.ndim]
    kinds = [[t.untyped_storage() for t in k] for k in (weights, gradients, state)]
    return [sum({s.data_ptr(): s.nbytes() for s in kind}.values()) for kind in kinds]


def sent():
    """Bytes that this process has sent over TCP, as gloo does; 0 if it cannot tell."""
    dist.barrier()  # then all that was sent before has arrived
    total = 0
    for fd in map(int, os.listdir("/proc/self/fd") if sys.platform == "linux" else []):
        with suppress(OSError, struct.error):  # closed, not TCP, or an old kernel
            if os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
                with socket.fromfd(fd, socket.AF_INET, socket.SOCK_STREAM) as link:
                    info = link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 216)
                    once, again = struct.unpack_from("QQ", info, 200)
                    total += once - again  # a lost packet goes out again
    dist.barrier()  # a rank that leaves closes connections that others still count
    return total if dist.get_backend() == "gloo" else 0  # others do not use TCP here


def train(make, dtype, rank, world_size, device):
    """Train this way and, beside it, in one process that has all ranks' samples."""
    torch.manual_seed(0)  # the same weights on every rank
    model, expected = GPT().to(device, dtype), GPT().to(device, dtype)
    expected.load_state_dict(model.state_dict())
    adam, diary = torch.optim.Adam(expected.parameters(), RATE), []
    moments = [w.register_post_accumulate_grad_hook for w in model.parameters()]
    for block in model.blocks:
        moments += [block.register_forward_pre_hook, block.register_forward_hook]
    for register in moments:
        register(lambda *_: diary.append(held(way)))
    way = make(model)
    for step in range(STEPS):
        diary.clear()
        samples = [each.to(device) for each in batch(step, SAMPLES * world_size)]
        before = sent()
        way.step(*(each[rank::world_size] for each in samples))
        left = sent() - before
        adam.zero_grad()
        loss_of(expected(samples[0]), samples[1]).backward()
        adam.step()
    return way, expected, [*diary, held(way)], left


def measure(stage, make, rank, world_size, device):
    """Compare with one process; then return what was held, when, and what was sent."""
    # In float64, rounding stays small even where Adam enlarges it.
    way, expected, *_ = train(make, torch.float64, rank, world_size, device)
    for unit in way.units:
        unit.gather()
    for w, e in zip(way.model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(w, e, atol=1e-9, rtol=0, msg="weights differ")
    *_, diary, left = train(make, torch.float32, rank, world_size, device)
    most = [max(kind) for kind in zip(*diary, strict=True)]
    size = sum(4 * e.numel() for e in expected.parameters())
    sizes = zip(most, (size, size, 2 * size), strict=True)
    whole = [m > 0.8 * size for m, size in sizes]
    halves = 3 if stage == 3 else 2  # of an all_reduce
    limit = 1.01 * halves * size * (world_size - 1) / world_size
    if whole != [stage < 3, stage < 2, stage < 1] or left > limit:
        raise AssertionError(f"stage {stage} held {most} bytes and sent {left}")
    return {"most": most, "diary": diary, "sent": left}


def main(rank, world_size, device):
    # Ranks that share a GPU: gloo can gather only what is in host memory.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    facts = {}
    for stage, make in ways().items():
        name = f"ZeRO-{stage}" if stage else "DDP"
        facts[name] = measure(stage, make, rank, world_size, device)
        if rank == 0:
            most = ", ".join(f"{count:,}" for count in facts[name]["most"])
            told = f"as one process; most bytes of weights, gradients, Adam: {most}"
            print(f"[rank 0] {name}: {told}", flush=True)
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
