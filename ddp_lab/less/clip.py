"""Accumulate, unscale, clip and skip, when each rank has a piece of the gradient.

    torchrun --standalone --nproc-per-node 4 ddp_lab/less/clip.py

    [rank 0] step 0: clipped from ..., scale ...
    [rank 0] step 1: skipped, scale ...

Written by notebooks/13_sending_less.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.elastic.multiprocessing.errors import record

from ddp_lab.gpt import GPT, Config, batch, loss_of

ROWS, STEPS, RATE = 4, 4, 1e-2
MICRO, LIMIT, BAD = 2, 1.0, 1  # micro-batches; the largest norm; a step that overflows

CONFIG = Config(layers=1, width=48, heads=4, vocab=1024)  # 49,152 weights for words


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


def norm_of_all(piece):
    """The norm of the gradient of which each rank has a piece."""
    total = piece.square().sum()
    dist.all_reduce(total)  # every rank now holds the sum of all squares
    return total.sqrt()


class Clipped(Pieces):
    """Pieces, for several micro-batches, with GradScaler and clipping."""

    def make_step(self, micro_batches, scaler, overflow):
        for tokens, targets in micro_batches:
            loss = loss_of(self.model(tokens), targets) / len(micro_batches)
            scaler.scale(loss).backward()  # one scale for all of them
        if overflow:
            self.weights[0].grad[0, 0] = torch.inf  # in the piece of rank 0
        self.piece.grad = piece_of_mean(in_a_row([w.grad for w in self.weights]))
        norm = norm_of_all(self.piece.grad) / scaler.get_scale()
        if not norm.isfinite():
            self.piece.grad.fill_(torch.inf)  # all ranks skip, not rank 0 alone
        scaler.unscale_(self.adam)
        self.piece.grad *= (LIMIT / (norm + 1e-6)).clamp(max=1)  # as PyTorch does
        scaler.step(self.adam)  # which is left out after an infinity
        scaler.update()
        self.tell()
        return norm.item()


def one_process(world_size, device):
    """The truth: PyTorch's own clipping, and the whole batch of each good step."""
    torch.manual_seed(0)
    model, norms = GPT(CONFIG).to(device, torch.float64), []
    adam = torch.optim.Adam(model.parameters(), RATE)
    for step in range(STEPS):
        tokens, targets = (t.to(device) for t in batch(step, ROWS * world_size))
        model.zero_grad()
        loss_of(model(tokens), targets).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), LIMIT)
        norms.append(norm.item())
        if step != BAD:
            adam.step()
    return in_a_row(model.parameters()), norms


def in_pieces(norms, rank, world_size, device):
    """Make the same steps on all ranks; compare the norms, and keep the scales."""
    torch.manual_seed(0)
    way, scales = Clipped(GPT(CONFIG).to(device, torch.float64)), [1024]
    scaler = torch.amp.GradScaler(device.type, init_scale=scales[0])
    for step in range(STEPS):
        rows = [t.to(device)[rank::world_size] for t in batch(step, ROWS * world_size)]
        micro_batches = list(zip(*(each.chunk(MICRO) for each in rows), strict=True))
        overflow = step == BAD and rank == world_size - 1
        norm = way.make_step(micro_batches, scaler, overflow)
        scales.append(scaler.get_scale())
        did = "skipped" if scales[-1] < scales[-2] else f"clipped from {norm:.2f}"
        print(f"[rank {rank}] step {step}: {did}, scale {scales[-1]:.0f}", flush=True)
        if step != BAD and abs(norm - norms[step]) > 1e-9:
            raise AssertionError(f"the norm is {norm}, expected {norms[step]}")
    return way, scales[1:]


def main(rank, world_size, device):
    # Ranks that share a GPU: gloo can gather only what is in host memory.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    expected, norms = one_process(world_size, device)
    way, scales = in_pieces(norms, rank, world_size, device)
    torch.testing.assert_close(in_a_row(way.weights), expected, atol=1e-9, rtol=0)
    return {"norms": norms, "scales": scales}


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
