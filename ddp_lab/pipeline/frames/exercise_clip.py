"""Exercise: clip the gradients of a pipeline by a norm that no rank can find alone.

Fill in clip(), and it is compared with clipping the uncut model. Until then:

    [rank 0] not yet
"""

import copy
import random

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

VOCAB, WIDTH, ROWS = 24, 16, 32


def clip(part, limit):
    return None  # the cell's function stands here


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
