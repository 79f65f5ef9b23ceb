"""Experts on several ranks: tokens go to them and come back, as in one process.

    torchrun --standalone --nproc-per-node 2 ddp_lab/long/experts.py

    [rank 0] 189 of 192 tokens found room, gradients as in one process

Written by notebooks/20_long_sequences_and_experts.ipynb.
"""

import gc
import json
import math
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record

from ddp_lab.gpt import MLP, Config

CONFIG, EXPERTS, SLACK = Config(layers=1, width=48), 12, 1.25


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
        parts = zip(self.experts.values(), rows.split(counts.tolist()), strict=True)
        return torch.cat([expert(part) for expert, part in parts])


class Exchange(torch.autograd.Function):
    """Rows go to other ranks, and their gradients come back the same way."""

    @staticmethod
    def forward(ctx, rows, sends, comes):
        ctx.back = comes, sends
        recv_buf = rows.new_empty(sum(comes), rows.size(1))
        # Each rank gets its rows, in the order of the ranks that they come from.
        dist.all_to_all_single(recv_buf, rows.contiguous(), comes, sends)
        return recv_buf

    @staticmethod
    def backward(ctx, grad):
        return Exchange.apply(grad, *ctx.back), None, None


class ExpertsOverRanks(Experts):
    """The same layer, of which each rank has its share of the experts."""

    def __init__(self, whole):
        rank, n = dist.get_rank(), dist.get_world_size()
        super().__init__(range(rank * EXPERTS // n, (rank + 1) * EXPERTS // n))
        self.load_state_dict(whole.state_dict(), strict=False)

    def through_experts(self, rows, counts):
        n = dist.get_world_size()
        come = torch.empty_like(counts)
        dist.all_to_all_single(come, counts)  # how many rows each rank has for ours
        sends, comes = (each.view(n, -1).sum(1).tolist() for each in (counts, come))
        arrived = Exchange.apply(rows, sends, comes)  # sorted by rank, then by expert
        expert = torch.arange(EXPERTS // n, device=come.device).repeat(n)
        order = expert.repeat_interleave(come).argsort(stable=True)
        held = come.view(n, -1).sum(0)
        out = super().through_experts(arrived[order], held)
        return Exchange.apply(out[order.argsort()], comes, sends)


def average(net):
    """Average the gradients; an expert's come from the tokens of all ranks already."""
    common = []
    for name, p in net.named_parameters():
        p.grad /= dist.get_world_size()
        if "experts." not in name:
            common.append(p.grad)
    dist.all_reduce(row := torch.cat([g.flatten() for g in common]))  # now the sums
    for grad, part in zip(common, row.split([g.numel() for g in common]), strict=True):
        grad.copy_(part.view_as(grad))


def try_out(rank, n, device):
    """Compare this rank's gradients with those of the whole layer in one process."""
    torch.manual_seed(0)  # the same numbers on every rank
    expected = Experts().double().to(device)
    layer = ExpertsOverRanks(expected).double().to(device)
    batches = torch.randn(n, 8, 24, CONFIG.width).to(device, torch.float64)
    mine = batches[rank].clone().requires_grad_()  # as if a layer stood before it
    for each in batches.requires_grad_():  # the reference: batch after batch
        (expected(each).square().mean() / n).backward()
    layer(mine).square().mean().backward()
    average(layer)
    got = {name: p.grad for name, p in layer.named_parameters()}
    right = {name: p.grad for name, p in expected.named_parameters() if name in got}
    got["tokens"], right["tokens"] = mine.grad / n, batches.grad[rank]
    for name, grad in right.items():
        torch.testing.assert_close(got[name], grad, msg=f"gradient of {name} differs")
    wanted, counts = layer.wanted.tolist(), layer.counts.tolist()
    told = f"{sum(counts)} of {sum(wanted)} tokens found room"
    print(f"[rank {rank}] {told}, gradients as in one process", flush=True)
    return {"wanted": wanted, "counts": counts}


def main(rank, world_size, device):
    if EXPERTS % world_size:
        raise SystemExit(f"{world_size} ranks cannot share 12 experts: try 2, 3 or 4")
    # Ranks that share a GPU: not all of gloo's calls take what is in its memory.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    return try_out(rank, world_size, device)


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
