"""Four trainings on the same samples, in which the ranks meet often or hardly ever.

    torchrun --standalone --nproc-per-node 4 ddp_lab/less/rarely.py

    [rank 0] DiLoCo: ... bytes a step, loss ...

Written by notebooks/13_sending_less.ipynb.
"""

import gc
import json
import os
import socket
import struct
import sys
from contextlib import contextmanager, nullcontext, suppress

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from ddp_lab.gpt import GPT, TEXT, Config, batch, loss_of

ROWS, STEPS, RATE, LOOK = 4, 200, 0.1, 40  # LOOK: steps between two looks at the loss

CONFIG = Config(layers=1, width=48, heads=4)  # 34,080 weights
EVERY = 20  # steps from one meeting to the next
WAYS = {
    "DDP": {},
    "accumulation": {"every": EVERY},
    "local SGD": {"every": EVERY, "rate": 1.0, "momentum": 0.0},
    "DiLoCo": {"every": EVERY, "rate": 0.7, "momentum": 0.9},
}


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


class Accumulation:
    """The gradients of some batches, one message, and one step by their mean."""

    def __init__(self, ddp, every=1):
        self.every = every

    def step(self, ddp, sgd, samples, step):
        with ddp.no_sync() if (step + 1) % self.every else nullcontext():
            (loss_of(ddp(samples[0]), samples[1]) / self.every).backward()
        if (step + 1) % self.every == 0:
            sgd.step()
            sgd.zero_grad()


def train(options, rank, world_size, device, dtype=torch.float32, steps=STEPS):
    """Train this way; return its bytes and losses, and the weights."""
    torch.manual_seed(0)
    ddp = DDP(GPT(CONFIG).to(device, dtype))
    sgd, losses = torch.optim.SGD(ddp.parameters(), RATE), [text_loss(ddp, device)]
    way = (Local if "rate" in options else Accumulation)(ddp, **options)
    mine, start = slice(rank, None, world_size), sent()
    for step in range(steps):
        samples = [t.to(device)[mine] for t in batch(step, ROWS * world_size)]
        way.step(ddp, sgd, samples, step)
        if (step + 1) % LOOK == 0:
            losses.append(text_loss(ddp, device))
    facts = {"bytes": (sent() - start) // steps, "losses": losses}
    return facts | {"covered": getattr(way, "covered", [])}, flat(ddp)


class Local:
    """Steps alone and, every so often, an outer step for all ranks."""

    def __init__(self, ddp, every, rate, momentum):
        self.every, self.covered = every, []
        self.common = torch.nn.Parameter(flat(ddp))  # the weights all ranks began with
        self.outer = torch.optim.SGD(
            [self.common], rate, momentum, nesterov=momentum > 0
        )

    def step(self, ddp, sgd, samples, step):
        with ddp.no_sync():
            loss_of(ddp(samples[0]), samples[1]).backward()
        sgd.step()
        sgd.zero_grad()
        if (step + 1) % self.every == 0:
            self.meet(ddp)

    def meet(self, ddp):
        way = self.common.data - flat(ddp)  # how far this rank has come, backwards
        mean, length = way / dist.get_world_size(), way.norm() / dist.get_world_size()
        dist.all_reduce(mean)  # every rank now holds the mean of all ways
        dist.all_reduce(length)
        self.covered.append((mean.norm() / length).item())
        self.common.grad = mean
        self.outer.step()
        vector_to_parameters(self.common.data.clone(), ddp.parameters())


def flat(ddp):
    return parameters_to_vector(ddp.parameters()).detach()


def main(rank, world_size, device):
    # Ranks that share a GPU: gloo can gather only what is in host memory.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    facts, short = {}, (rank, world_size, device, torch.float64, 3)
    every_step = {"every": 1, "rate": 1.0, "momentum": 0.0}
    weights = [train(options, *short)[1] for options in (every_step, {})]
    torch.testing.assert_close(*weights, atol=1e-9, rtol=0, msg="weights differ")
    for way, options in WAYS.items():
        facts[way], weights = train(options, rank, world_size, device)
        told = "{bytes} bytes a step".format(**facts[way])
        told += f", loss {facts[way]['losses'][-1]:.2f}"
        print(f"[rank {rank}] {way}: {told}", flush=True)
        same_on_all(weights)
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
