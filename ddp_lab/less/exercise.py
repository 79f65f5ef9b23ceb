"""Exercise: a hook that sends one bit for each number, and still arrives.

    torchrun --standalone --nproc-per-node 4 ddp_lab/less/exercise.py

Fill in one_bit(), and a training under DDP uses it. Until then:

    [rank 0] not yet

Written by notebooks/13_sending_less.ipynb.
"""

import gc
import json
import os
import secrets
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils._python_dispatch import TorchDispatchMode

NUMBERS, STEPS, RATE = 256, 200, 0.3
LEFT = 0.02  # of the first loss may be left


def one_bit(gradient, owed):
    """Return one bit for each number of a gradient, and one number for all of them.

    gradient: of a bucket, (256,). owed: zeros at first, of the same shape; what you
    leave in it is there in the next step. Return (bits, scale): bools of that shape,
    and a tensor of one number. The other ranks read each bit as +scale or -scale.
    """
    return None  # your code here


class Alone(TorchDispatchMode):
    """Raises where one_bit calls other ranks: only bits and scale may leave."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if "c10d" in str(function):
            raise AssertionError(f"{function}: one_bit may not communicate")
        return function(*args, **(kwargs or {}))


def hook(state, bucket):
    """The mean of what all ranks have made of their gradients, from bits and scales."""
    gradient, n = bucket.buffer(), dist.get_world_size()
    with Alone():
        bits, scale = one_bit(gradient.clone(), state["owed"])
        scale = torch.as_tensor(scale, device=bits.device)  # also of a number
    if bits.dtype != torch.bool or bits.shape != gradient.shape or scale.numel() != 1:
        raise AssertionError(f"{bits.dtype} {tuple(bits.shape)}, scale {scale}")
    powers = 2 ** torch.arange(8, dtype=torch.uint8, device=bits.device)
    packed = (bits.view(-1, 8) * powers).sum(1, dtype=torch.uint8)  # 8 bits a byte
    message = torch.cat([packed, scale.float().view(1).view(torch.uint8)])
    everyone = message.new_empty(n * len(message))
    dist.all_gather_into_tensor(everyone, message)  # all hold the bits of all ranks
    state["bytes"] += (n - 1) * len(message)  # what each rank sends in a ring
    mean = torch.zeros_like(gradient)
    for row in everyone.view(n, -1):
        signs = (row[:-4, None] & powers).bool().flatten()
        size = row[-4:].clone().view(torch.float32)
        mean += torch.where(signs, size, -size) / n
    future = torch.futures.Future()
    future.set_result(mean)
    return future


def problem(rank, world_size, device):
    """How curved the loss is in each number, and where this rank's is lowest."""
    seed = torch.tensor(secrets.randbelow(2**31))
    dist.broadcast(seed, src=0)  # every rank now holds rank 0's
    generator = torch.Generator().manual_seed(seed.item())
    curved = torch.rand(NUMBERS, generator=generator) * 0.9 + 0.1
    lowest = 5 * torch.randn(world_size, NUMBERS, generator=generator)  # they disagree
    return curved.to(device), lowest.to(device)


def train(curved, lowest, rank, state):
    """Train under DDP with the hook, or without; return the loss that is left."""
    layer = torch.nn.Linear(NUMBERS, 1, bias=False).to(curved.device)
    torch.nn.init.zeros_(layer.weight)
    ddp, one = DDP(layer), torch.eye(NUMBERS, device=curved.device)
    ddp.register_comm_hook(state, hook if state else allreduce_hook)
    sgd = torch.optim.SGD(ddp.parameters(), RATE)
    slower = torch.optim.lr_scheduler.LambdaLR(sgd, lambda step: 1 - step / STEPS)
    losses, best = [], lowest.mean(0)
    for _ in range(STEPS):
        now = layer.weight.detach().flatten()
        losses.append((curved * (now - best).square()).mean().item())
        sgd.zero_grad()
        off = ddp(one).flatten() - lowest[rank]
        ((curved * off.square()).sum() / 2).backward()
        sgd.step()
        slower.step()
    return losses[-1] / losses[0]


def main(rank, world_size, device):
    # Ranks that share a GPU: gloo can gather only what is in host memory.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    zeros = torch.zeros(NUMBERS, device=device)
    if one_bit(zeros.clone(), zeros.clone()) is None:
        print(f"[rank {rank}] not yet", flush=True)
        dist.barrier()  # to leave now would cut off those that are still joining
        return {"solved": False}
    curved, lowest = problem(rank, world_size, device)
    state = {"owed": zeros, "bytes": 0}
    plain = train(curved, lowest, rank, None)
    left = train(curved, lowest, rank, state)
    ring = 2 * (world_size - 1) / world_size * 4 * NUMBERS * STEPS  # DDP's bytes
    told = f"{left:.1%} of the loss is left (DDP: {plain:.1%})"
    told += f", {ring / state['bytes']:.1f} times fewer bytes"
    print(f"[rank {rank}] {told}", flush=True)
    if not left <= LEFT:  # also if it is not a number
        raise AssertionError(f"{told}; at most {LEFT:.0%} may be left")
    return {"solved": True, "left": left, "fewer": ring / state["bytes"]}


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
