"""One training under six hooks: what each sends, and what it learns.

    torchrun --standalone --nproc-per-node 4 ddp_lab/less/hooks.py

    [rank 0] PowerSGD: ... bytes a step, loss ...

Written by notebooks/13_sending_less.ipynb.
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
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    allreduce_hook,
    bf16_compress_hook,
    fp16_compress_hook,
)
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import (
    PowerSGDState,
    powerSGD_hook,
)
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_lab.gpt import GPT, TEXT, Config, batch, loss_of

SHARE = 0.01  # of the numbers in a bucket; at least one is sent
ROWS, STEPS, RATE = 4, 75, 0.3  # a rank's samples in a step

CONFIG = Config(layers=1, width=48, heads=4)  # 34,080 weights
LOOK = 25  # steps between two looks at the loss


def top_k(owed, bucket):
    """DDP's hook: the mean of the ranks' largest numbers; `owed` keeps the others."""
    index, size = bucket.index(), len(bucket.buffer())
    if index not in owed or len(owed[index]) != size:
        owed[index] = torch.zeros_like(bucket.buffer())
        return allreduce_hook(None, bucket)  # whole: DDP regroups buckets once
    total = bucket.buffer() + owed[index]
    largest = total.abs().topk(max(1, int(SHARE * size))).indices
    owed[index] = total.index_fill(0, largest, 0)  # for later steps
    # Every rank then holds the places and the numbers that all ranks have chosen.
    places, numbers = gathered(largest.int()), gathered(total[largest])
    mean = torch.zeros_like(total)
    for place, number in zip(places, numbers, strict=True):  # in one order everywhere
        mean[place] += number / dist.get_world_size()
    future = torch.futures.Future()  # DDP waits for what a hook returns
    future.set_result(mean)
    return future


def gathered(mine):
    """What each rank has chosen: (ranks, numbers)."""
    everyone = mine.new_empty(dist.get_world_size() * len(mine))
    dist.all_gather_into_tensor(everyone, mine)
    return everyone.view(-1, len(mine))


def goals(world_size):
    """By rank, where its loss wants the weights; the mean is [0, 1]."""
    first = torch.full((world_size,), -4.0)
    first[0] = 4.0 * (world_size - 1)  # the ranks pull at the first weight, in vain
    return torch.stack([first, torch.ones(world_size)], dim=1)  # (ranks, 2)


def bf16(_, bucket):
    """By another name: where torch has no CUDA, DDP refuses bf16_compress_hook."""
    return bf16_compress_hook(None, bucket)


def forgetful(owed, bucket):
    """Top-k without error feedback."""
    for debt in owed.values():
        debt.zero_()
    return top_k(owed, bucket)


def hooks():
    """By name, the state and the function that register_comm_hook takes."""
    power = PowerSGDState(None, matrix_approximation_rank=1, start_powerSGD_iter=2)
    found = {"DDP": (None, allreduce_hook), "fp16": (None, fp16_compress_hook)}
    found |= {"bf16": (None, bf16), "PowerSGD": (power, powerSGD_hook)}
    return found | {"top-k": ({}, top_k), "forgetful top-k": ({}, forgetful)}


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


@torch.no_grad()
def text_loss(ddp, device):
    """The loss on the whole text, cut into rows."""
    rows = TEXT[: len(TEXT) // 33 * 33].view(-1, 33).to(device)
    return loss_of(ddp.module(rows[:, :-1]), rows[:, 1:]).item()


def same_on_all(row):
    """Stop unless these numbers are the same on all ranks, to the bit."""
    expected = row.clone()
    dist.broadcast(expected, src=0)  # every rank now holds rank 0's
    torch.testing.assert_close(row, expected, atol=0, rtol=0, msg="ranks differ")


def train(state, hook, rank, world_size, device):
    """Train under this hook; return the bytes of a step, and the loss as it fell."""
    torch.manual_seed(0)
    ddp = DDP(GPT(CONFIG).to(device))
    ddp.register_comm_hook(state, hook)
    sgd, losses = torch.optim.SGD(ddp.parameters(), RATE), [text_loss(ddp, device)]
    mine, start = slice(rank, None, world_size), sent()
    for step in range(STEPS):
        tokens, targets = (t.to(device)[mine] for t in batch(step, ROWS * world_size))
        sgd.zero_grad()
        loss_of(ddp(tokens), targets).backward()
        sgd.step()
        if (step + 1) % LOOK == 0:
            losses.append(text_loss(ddp, device))
    left = sent() - start
    same_on_all(torch.cat([w.detach().flatten() for w in ddp.parameters()]))
    return {"bytes": left // STEPS, "losses": losses}


def main(rank, world_size, device):
    if dist.get_backend() == "gloo":  # in host memory; PowerSGD then must see no GPU
        device, torch.cuda.is_available = torch.device("cpu"), lambda: False
    facts = {}
    for way, (state, hook) in hooks().items():
        facts[way] = fact = train(state, hook, rank, world_size, device)
        told = f"{fact['bytes']} bytes a step, loss {fact['losses'][-1]:.2f}"
        print(f"[rank {rank}] {way}: {told}", flush=True)
    lost = {way: fact["losses"][-1] for way, fact in facts.items()}
    for way in ("fp16", "bf16", "PowerSGD", "top-k"):
        if not lost[way] < (lost["DDP"] + lost["forgetful top-k"]) / 2:
            raise AssertionError(f"{way} did not learn as DDP did: {lost}")
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
