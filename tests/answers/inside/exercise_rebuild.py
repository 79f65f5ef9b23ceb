# %% wrong: from the last to the first
def rebuild(order, sizes, cap, device):
    buckets, held = [], cap
    for weight in reversed(range(len(sizes))):
        if held >= cap:
            buckets.append([])
            held = 0
        buckets[-1].append(weight)
        held += sizes[weight]
    return buckets


# %% wrong: its own order
def rebuild(order, sizes, cap, device):
    buckets, held = [], cap
    for weight in order:
        if held >= cap:
            buckets.append([])
            held = 0
        buckets[-1].append(weight)
        held += sizes[weight]
    return buckets


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


# %% right: by running sums
def rebuild(order, sizes, cap, device):
    box = [order]
    dist.broadcast_object_list(box, src=0, device=device)
    buckets, current = [], []
    for weight in box[0]:
        current.append(weight)
        if sum(sizes[each] for each in current) >= cap:
            buckets.append(current)
            current = []
    return buckets + [current] * bool(current)


# %% right: orders gathered
def rebuild(order, sizes, cap, device):
    orders = [None] * dist.get_world_size()
    dist.all_gather_object(orders, order)
    left, buckets = orders[0][:], []
    while left:
        count, held = 0, 0
        while count < len(left) and held < cap:
            held += sizes[left[count]]
            count += 1
        buckets.append(left[:count])
        del left[:count]
    return buckets


# %% right: rank 0 cuts
def rebuild(order, sizes, cap, device):
    buckets, held = [[]], 0
    for weight in order:
        if held >= cap:
            buckets.append([])
            held = 0
        buckets[-1].append(weight)
        held += sizes[weight]
    box = [buckets]
    dist.broadcast_object_list(box, src=0, device=device)
    return box[0]


# %% right: slices of a tensor
def rebuild(order, sizes, cap, device):
    shared = torch.tensor(order, device=device)
    dist.broadcast(shared, src=0)
    buckets, begin, held = [], 0, 0
    for end, weight in enumerate(shared.tolist(), 1):
        held += sizes[weight]
        if held >= cap or end == len(order):
            buckets.append(shared[begin:end])
            begin, held = end, 0
    return buckets
