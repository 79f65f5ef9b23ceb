"""Half of the tokens choose expert 0: all ranks wait until it has done them.

    torchrun --standalone --nproc-per-node 2 ddp_lab/long/slow.py

    [rank 0] no limit: computed ... rows
    [rank 1] no limit: computed ... rows, and waited for rank 0

Written by notebooks/17_long_sequences_and_experts.ipynb.
"""

import gc
import json
import math
import os
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record

from ddp_lab.gpt import MLP, Config

CONFIG, EXPERTS, SLACK = Config(layers=1, width=48), 12, 1.25

NAP, SLACKS = 0.001, {"no limit": EXPERTS, "slack 1.25": SLACK}  # seconds for a row


def admitted(chosen, slack):
    """Which tokens find room with the expert they chose; sorted by expert."""
    room = math.ceil(slack * len(chosen) / EXPERTS)
    wants = F.one_hot(chosen, EXPERTS)  # (tokens, experts)
    place = (wants.cumsum(0) * wants).sum(-1)  # 1 for the first with this choice
    kept = (place <= room).nonzero().flatten()
    return kept[chosen[kept].argsort(stable=True)]


class Experts(nn.Module):
    """In place of an MLP: a router chooses one of twelve for each token."""

    def __init__(self, held=range(EXPERTS)):
        super().__init__()
        self.slack, self.router = SLACK, nn.Linear(CONFIG.width, EXPERTS, bias=False)
        self.experts = nn.ModuleDict({str(e): MLP(CONFIG) for e in held})

    def forward(self, x):  # (batch, time, width)
        tokens = x.flatten(0, 1)
        probs = self.router(tokens).softmax(-1)  # (tokens, experts)
        weight, chosen = probs.max(-1)
        kept = admitted(chosen, self.slack)
        self.wanted = chosen.bincount(minlength=EXPERTS)
        self.counts = chosen[kept].bincount(minlength=EXPERTS)
        out = self.through_experts(tokens[kept], self.counts) * weight[kept, None]
        # What no expert took gets zeros: only the residual carries it on.
        return torch.zeros_like(tokens).index_add(0, kept, out).view_as(x)

    def through_experts(self, rows, counts):
        """Each expert takes its rows; they come sorted by expert."""
        parts = zip(self.experts.values(), rows.split(counts.tolist()), strict=True)
        return torch.cat([expert(part) for expert, part in parts])


class Exchange(torch.autograd.Function):
    """Send some rows to each rank; gradients go back the way that the rows came."""

    @staticmethod
    def forward(ctx, rows, sends, comes):
        ctx.splits = sends, comes
        return exchange(rows, sends, comes)

    @staticmethod
    def backward(ctx, grad):
        sends, comes = ctx.splits
        return exchange(grad, comes, sends), None, None


def exchange(rows, sends, comes):
    """Return the rows for this rank, in the order of the ranks they come from."""
    recv_buf = rows.new_empty(sum(comes), rows.size(1))
    dist.all_to_all_single(recv_buf, rows.contiguous(), comes, sends)
    return recv_buf


class ExpertsOverRanks(Experts):
    """The same layer, of which each rank has some experts."""

    def through_experts(self, rows, counts):
        n = dist.get_world_size()
        come = torch.empty_like(counts)
        dist.all_to_all_single(come, counts)  # how many rows each rank has for ours
        sends, comes = (each.view(n, -1).sum(1).tolist() for each in (counts, come))
        arrived = Exchange.apply(rows, sends, comes)  # sorted by rank, then by expert
        expert = torch.arange(EXPERTS // n, device=come.device).repeat(n)
        order = expert.repeat_interleave(come).argsort(stable=True)
        held = come.view(n, -1).sum(0)
        began, self.rows = time.time(), held.sum().item()
        time.sleep(NAP * self.rows)  # the work of this rank's experts
        out = super().through_experts(arrived[order], held)
        done = time.time()
        back = Exchange.apply(out[order.argsort()], comes, sends)
        self.diary = [["experts", began, done], ["combine", done, time.time()]]
        return back


def share(rank, n):
    """Which experts does a rank hold?"""
    return range(rank * EXPERTS // n, (rank + 1) * EXPERTS // n)


def main(rank, world_size, device):
    if EXPERTS % world_size:
        raise SystemExit(f"{world_size} ranks cannot share 12 experts: try 2, 3 or 4")
    # Ranks that share a GPU: not all of gloo's calls take what is in its memory.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    torch.manual_seed(0)  # the same numbers on every rank
    whole, facts = Experts().to(device), {}
    layer = ExpertsOverRanks(share(rank, world_size)).to(device)
    layer.load_state_dict(whole.state_dict(), strict=False)
    tokens = torch.randn(world_size, 192, CONFIG.width).to(device)[rank]
    tokens[::2] += 40 * layer.router.weight[0].detach()  # these choose expert 0
    for name, layer.slack in SLACKS.items():
        dist.barrier()
        with torch.no_grad():
            layer(tokens[None])
        done = [None] * world_size
        # Every rank now knows how many rows each had, and when it was done.
        dist.all_gather_object(done, (layer.rows, layer.diary[0][2]))
        rows, last = max(done)
        if layer.diary[1][2] < last:  # one clock for all ranks of a machine
            raise AssertionError(f"{name}: did not wait for a rank with {rows} rows")
        told = f"computed {layer.rows} rows"
        told += ", and waited for rank 0" if layer.rows < rows else ""
        print(f"[rank {rank}] {name}: {told}", flush=True)
        kept = layer.counts.sum().item()
        facts[name] = {"rows": layer.rows, "kept": kept, "diary": layer.diary}
    return facts


# --- the same in every program: join the group, run main, leave whatever happens ---


@contextmanager
def process_group():
    """A GPU per rank over NCCL; else gloo, on a shared GPU or the CPU."""
    device, backend = torch.device("cpu"), "gloo"
    if count := torch.cuda.device_count():
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % count)
        torch.cuda.set_device(device)
        if count >= int(os.environ["LOCAL_WORLD_SIZE"]):
            backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, device_id=device if "nccl" in backend else None)
    try:
        yield dist.get_rank(), dist.get_world_size(), device
    finally:
        dist.destroy_process_group()
        gc.collect()  # a leftover gloo object could abort the process at exit


@record
def run():
    with process_group() as (rank, world_size, device):
        if facts := main(rank, world_size, device):
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    run()
