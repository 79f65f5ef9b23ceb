# %% wrong: from the last to the first
CHANGES = {
    "shared = torch.tensor(order, device=device)": "",
    "dist.broadcast(shared, src=0)": "",
    "for weight in shared.tolist():": "for weight in reversed(range(len(sizes))):",
}


# %% wrong: its own order
CHANGES = {
    "shared = torch.tensor(order, device=device)": "",
    "dist.broadcast(shared, src=0)": "",
    "for weight in shared.tolist():": "for weight in order:",
}


# %% wrong: never above the limit
import torch
import torch.distributed as dist


def rebuild(order, sizes, cap, device):
    shared = torch.tensor(order, device=device)
    dist.broadcast(shared, src=0)
    buckets, held = [[]], 0
    for weight in shared.tolist():
        if held + sizes[weight] > cap:
            buckets.append([])
            held = 0
        buckets[-1].append(weight)
        held += sizes[weight]
    return buckets


# %% wrong: sizes by place
import torch
import torch.distributed as dist


def rebuild(order, sizes, cap, device):
    shared = torch.tensor(order, device=device)
    dist.broadcast(shared, src=0)
    buckets, held = [], cap
    for weight, size in zip(shared.tolist(), sizes, strict=True):
        if held >= cap:
            buckets.append([])
            held = 0
        buckets[-1].append(weight)
        held += size
    return buckets


# %% wrong: the last rank decides
import torch
import torch.distributed as dist


def rebuild(order, sizes, cap, device):
    shared = torch.tensor(order, device=device)
    dist.broadcast(shared, src=dist.get_world_size() - 1)
    buckets, held = [], cap
    for weight in shared.tolist():
        if held >= cap:
            buckets.append([])
            held = 0
        buckets[-1].append(weight)
        held += sizes[weight]
    return buckets


# %% right: all but rank 0 bring zeros
from itertools import accumulate


class Bucket(list):
    def __init__(self, sizes, cap):
        self.sizes, self.cap = sizes, cap

    def is_full(self):
        return sum(self.sizes[weight] for weight in self) >= self.cap


def rebuild(order, sizes, cap, device):
    row = torch.tensor(order, device=device) * int(dist.get_rank() == 0)
    dist.all_reduce(row)

    def put(buckets, weight):
        if buckets[-1].is_full():
            buckets.append(Bucket(sizes, cap))
        buckets[-1].append(weight)
        return buckets

    *_, buckets = accumulate(row.tolist(), put, initial=[Bucket(sizes, cap)])
    return [list(bucket) for bucket in buckets]
