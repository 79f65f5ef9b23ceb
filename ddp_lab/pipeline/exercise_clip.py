"""Exercise: clip the gradients of a pipeline by a norm that no rank can find alone.

    torchrun --standalone --nproc-per-node 3 ddp_lab/pipeline/exercise_clip.py

Fill in clip(), and it is compared with clipping the uncut model. Until then:

    [rank 0] not yet

Written by notebooks/19_pipelines.ipynb.
"""

import copy
import gc
import json
import os
import random
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record

VOCAB, WIDTH, ROWS = 24, 16, 32


def clip(part, limit):
    """Clip the gradients of all stages as if the model were in one piece.

    part: this rank's stage. The first stage has part.tokens.weight, and the last one
    part.head.weight: two copies of one weight, both with its whole gradient by now.
    Change the gradients in place; return the norm of the uncut model's gradients.
    """
    return None  # your code here


class Uncut(nn.Module):
    """A layer for each rank, between an embedding and a head that share a weight."""

    def __init__(self, layers):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(layers))
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens)
        for block in self.blocks:
            x = x + torch.tanh(block(x))
        return self.head(x)


class Part(nn.Module):
    """One stage of it, under the names that it has there."""

    def __init__(self, whole, rank, world_size):
        super().__init__()
        self.is_first, self.is_last = rank == 0, rank == world_size - 1
        self.blocks = nn.ModuleDict({str(rank): whole.blocks[rank]})
        if self.is_first:
            self.tokens = whole.tokens
        if self.is_last:
            self.head = whole.head


def after_backward(rank, world_size, device):
    """The uncut model, and this rank's stage: both have the whole gradients."""
    seed = torch.tensor(random.randrange(2**31))
    dist.broadcast(seed, src=0)  # all ranks draw what rank 0 draws
    torch.manual_seed(seed.item())
    uncut = Uncut(world_size).double()
    tokens, targets = torch.randint(VOCAB, (2, ROWS))
    uncut = uncut.to(device)
    F.cross_entropy(uncut(tokens.to(device)), targets.to(device)).backward()
    part = Part(copy.deepcopy(uncut), rank, world_size)
    gradients = {name: p.grad for name, p in uncut.named_parameters()}
    gradients["head.weight"] = gradients["tokens.weight"]
    for name, p in part.named_parameters():
        p.grad = gradients[name].clone()
    return uncut, part


def judge(rank, world_size, device, share):
    """Clip to a share of the norm; compare with the uncut model. None: not yet."""
    uncut, part = after_backward(rank, world_size, device)
    norm = torch.nn.utils.get_total_norm([p.grad for p in uncut.parameters()]).item()
    got = clip(part, share * norm)
    if got is None:
        return None
    if not abs(float(got) / norm - 1) < 1e-4:
        raise AssertionError(f"the norm is {norm:.4f}, not {float(got):.4f}")
    gradients = {name: p.grad for name, p in uncut.named_parameters()}
    gradients["head.weight"] = gradients["tokens.weight"]
    for name, p in part.named_parameters():
        expected = gradients[name] * min(1, share)
        if not torch.allclose(p.grad, expected, rtol=1e-4, atol=1e-9):
            off = (p.grad.norm() / expected.norm()).item()
            told = f"the gradient of {name} is {off:.3f} times as long as expected"
            raise AssertionError(f"limit {share:g} times the norm: {told}")
    return norm


def main(rank, world_size, device):
    for share in (0.5, 0.1, 2.0):  # above the norm, nothing is to be clipped
        if judge(rank, world_size, device, share) is None:
            print(f"[rank {rank}] not yet", flush=True)
            dist.barrier()  # to leave now would cut off those that are still joining
            return {"solved": False}
    print(f"[rank {rank}] clipped like the uncut model, three times", flush=True)
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
