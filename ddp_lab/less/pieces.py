"""Adam's state in even pieces, one for each rank: ZeRO-1, beside PyTorch's own.

    torchrun --standalone --nproc-per-node 4 ddp_lab/less/pieces.py

    [rank 0] pieces: Adam has ... numbers here, ... bytes sent

Written by notebooks/13_sending_less.ipynb.
"""

import gc
import json
import os
import socket
import struct
import sys
from contextlib import contextmanager, suppress
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

from ddp_lab.gpt import GPT, TEXT, Config, batch, loss_of

ROWS, STEPS, RATE = 4, 3, 1e-3

CONFIG = Config(layers=1, width=48, heads=4, vocab=1024)  # 49,152 weights for words
LOOK = 25  # steps between two looks at the loss
ZERO = partial(ZeroRedundancyOptimizer, optimizer_class=torch.optim.Adam)


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


def held(adam):
    """How many numbers Adam keeps on this rank."""
    state = getattr(adam, "optim", adam).state  # the library's is around another
    return sum(t.numel() for each in state.values() for t in each.values() if t.ndim)


def train(make, mine, world_size, device):
    """Make some steps on my rows; return what made them, and what the last one sent."""
    torch.manual_seed(0)
    # In float64, rounding stays small even where Adam enlarges its effect.
    way = make(GPT(CONFIG).to(device, torch.float64))
    for step in range(STEPS):
        tokens, targets = (t.to(device)[mine] for t in batch(step, ROWS * world_size))
        start = sent()
        way.make_step(tokens, targets)
        left = sent() - start
    return way, left


def in_a_row(tensors):
    """All numbers of tensors in one row, with zeros behind them so that it divides."""
    numbers = torch.cat([each.detach().flatten() for each in tensors])
    return F.pad(numbers, (0, -len(numbers) % dist.get_world_size()))


def piece_of_mean(row):
    """The ranks' mean of this rank's piece: a reduce_scatter, half an all_reduce."""
    brought = torch.empty_like(row)
    dist.all_to_all_single(brought, row)  # here then: my piece, as each rank has it
    return brought.unflatten(0, (dist.get_world_size(), -1)).mean(0)


class Pieces:
    """Adam on this rank's piece of the weights."""

    def __init__(self, model):
        self.model, self.weights = model, list(model.parameters())
        self.row, sizes = in_a_row(self.weights), [w.numel() for w in self.weights]
        parts = self.row[: sum(sizes)].split(sizes)
        for w, part in zip(self.weights, parts, strict=True):
            w.data = part.view_as(w)  # the weights now lie in the row
        mine = self.row.chunk(dist.get_world_size())[dist.get_rank()]
        self.piece = torch.nn.Parameter(mine)
        self.adam = torch.optim.Adam([self.piece], RATE)

    def make_step(self, tokens, targets):
        loss_of(self.model(tokens), targets).backward()
        self.piece.grad = piece_of_mean(in_a_row([w.grad for w in self.weights]))
        self.adam.step()
        self.tell()

    def tell(self):
        self.model.zero_grad()
        # Every rank then holds all pieces, each as its owner has updated it.
        dist.all_gather_into_tensor(self.row, self.piece.detach())


class Whole:
    """All weights and gradients, and an optimizer of this kind."""

    def __init__(self, model, wrap=DDP, adam=torch.optim.Adam):
        self.model, self.wrapped = model, wrap(model)
        self.adam = adam(model.parameters(), lr=RATE)

    def make_step(self, tokens, targets):
        loss_of(self.wrapped(tokens), targets).backward()
        self.adam.step()
        self.model.zero_grad()


def main(rank, world_size, device):
    # Ranks that share a GPU: gloo can gather only what is in host memory.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    alone = partial(Whole, wrap=lambda model: model)  # one process, all rows
    truth, _ = train(alone, slice(None), world_size, device)
    expected = in_a_row(truth.model.parameters())
    facts = {}
    ways = {"DDP": Whole, "pieces": Pieces, "library": partial(Whole, adam=ZERO)}
    for name, make in ways.items():
        way, left = train(make, slice(rank, None, world_size), world_size, device)
        weights = in_a_row(way.model.parameters())
        torch.testing.assert_close(weights, expected, atol=1e-9, rtol=0, msg=name)
        facts[name] = {"held": held(way.adam), "sent": left}
        told = f"Adam has {facts[name]['held']} numbers here, {left} bytes sent"
        print(f"[rank {rank}] {name}: {told}", flush=True)
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
