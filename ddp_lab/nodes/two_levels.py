"""One sum over all ranks in three ways, and what each way sends out of a node.

    torchrun --standalone --nproc-per-node 4 ddp_lab/nodes/two_levels.py

On several nodes, with `--nnodes` as well, it counts what leaves a node:

    [rank 0] flat: ... ms, out of node 0: ... times the tensor

Written by notebooks/10_many_machines.ipynb.
"""

import gc
import inspect
import json
import os
import socket
import statistics
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

NUMBERS = 2**19  # in float32, so a tensor of 2 MB
REPEATS = 3  # that count, after one that does not
# Whether a group can have another order than that of the ranks: not in torch 2.11.
ORDERED = "sort_ranks" in inspect.signature(dist.new_group).parameters


def two_levels(tensor, inside, across, leader):
    """Sum over all ranks by way of the leaders, one of each node."""
    # Each leader ends up with the sum of its node.
    dist.reduce(tensor, dst=leader, group=inside)
    if dist.get_rank() == leader:
        dist.all_reduce(tensor, group=across)  # the leaders: the sum of all nodes
    # Every rank ends up with what its leader holds.
    dist.broadcast(tensor, src=leader, group=inside)


def make_ways(rank, nodes):
    """Name -> the order of the ring across nodes, and a function that sums a tensor."""
    world = list(range(len(nodes)))
    members = [[r for r in world if nodes[r] == node] for node in sorted(set(nodes))]
    inside = [dist.new_group(ranks) for ranks in members][nodes[rank]]
    leaders = [ranks[0] for ranks in members]
    groups = inside, dist.new_group(leaders), leaders[nodes[rank]]
    ways = {"flat": (world, dist.all_reduce)}
    ways["two_levels"] = leaders, lambda tensor: two_levels(tensor, *groups)
    if ORDERED:
        turns = sorted(world, key=lambda r: (r - leaders[nodes[r]], r))  # 0, 2, 1, 3
        group = dist.new_group(turns, sort_ranks=False)
        ways["mixed"] = turns, lambda tensor: dist.all_reduce(tensor, group=group)
    return ways


def bytes_sent():
    """What has left this node so far, as its network cards count; None: nobody does."""
    try:
        with open("/proc/net/dev") as file:
            rows = [line.split(":") for line in file if ":" in line]
    except OSError:  # not Linux
        return None
    cards = {name.strip(): counts.split() for name, counts in rows}
    return sum(int(counts[8]) for name, counts in cards.items() if name != "lo")


def measure(way, rank, world_size, device):
    """A call's milliseconds, and what left this node in it, in tensors."""
    times, sent = [], []
    for _ in range(REPEATS + 1):
        tensor = torch.full((NUMBERS,), rank + 1.0, device=device)
        before = bytes_sent() or 0
        dist.barrier()  # all begin together, and nobody before all have looked
        start = time.perf_counter()
        way(tensor)
        total, expected = tensor[-1].item(), world_size * (world_size + 1) / 2
        times.append(1000 * (time.perf_counter() - start))
        dist.barrier()  # the others' messages count as well
        sent.append((bytes_sent() or 0) - before)
        if total != expected:
            raise AssertionError(f"the sum is {total}, expected {expected}")
    return statistics.median(times[1:]), statistics.median(sent[1:]) / (4 * NUMBERS)


def by_theory(order, nodes, node):
    """The same bytes for a ring in this order: each hop carries 2 (n - 1) / n of it."""
    pairs = zip(order, [*order[1:], order[0]], strict=True)
    hops = sum(nodes[a] == node != nodes[b] for a, b in pairs)  # that leave the node
    return hops * 2 * (len(order) - 1) / len(order)


@record
def main():
    with process_group() as (rank, world_size, device):
        places = [None] * world_size
        own = int(os.environ["GROUP_RANK"]), socket.gethostname()
        dist.all_gather_object(places, own)  # every rank now holds node and host of all
        nodes, hosts = ([place[i] for place in places] for i in (0, 1))
        # Nodes that are played on one machine may share its network, and its counters.
        counted = 1 < len(set(nodes)) == len(set(hosts)) and bytes_sent() is not None
        facts = {"counted": counted}
        # gloo's reduce is for host memory, even beside a GPU.
        device = torch.device("cpu") if dist.get_backend() == "gloo" else device
        for name, (order, way) in make_ways(rank, nodes).items():
            milliseconds, sent = measure(way, rank, world_size, device)
            out = f"{sent:.2f} times the tensor" if counted else "not counted"
            told = f"{milliseconds:.0f} ms, out of node {own[0]}: {out}"
            print(f"[rank {rank}] {name}: {told}", flush=True)
            sent, theory = sent if counted else None, by_theory(order, nodes, own[0])
            facts[name] = {"milliseconds": milliseconds, "sent": sent, "theory": theory}
        print(json.dumps(facts), flush=True)


# --- the same in every program: join the group, and leave it whatever happens ---


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


if __name__ == "__main__":
    main()
