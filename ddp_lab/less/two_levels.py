"""One sum over all ranks in three ways, and what each sends out of a node.

    torchrun --standalone --nproc-per-node 4 ddp_lab/less/two_levels.py

Written by notebooks/13_sending_less.ipynb.
"""

import gc
import inspect
import json
import os
import socket
import statistics
import time
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

NUMBERS = 2**19  # in float32, so a tensor of 2 MB
# Whether a group can have its ranks in another order: not in torch 2.11.
ORDERED = "sort_ranks" in inspect.signature(dist.new_group).parameters

CARDS = Path("/proc/net/dev")  # where Linux counts what each network card has sent
REPEATS = 3  # that count, after one that does not


def two_levels(tensor, inside, across, leader):
    """Sum over all ranks by way of the leaders, one of each node."""
    dist.reduce(tensor, dst=leader, group=inside)  # leaders: the sum of their node
    if dist.get_rank() == leader:
        dist.all_reduce(tensor, group=across)  # the leaders: the sum of all nodes
    dist.broadcast(tensor, src=leader, group=inside)  # all: what their leader holds


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
    """What has left this node so far; 0 where it is not counted."""
    text = CARDS.read_text() if CARDS.exists() else ""
    rows = [line.split(":") for line in text.splitlines() if ":" in line]
    return sum(int(counts.split()[8]) for card, counts in rows if card.strip() != "lo")


def measure(call, *args):
    """A call's milliseconds, what left this node in it, and what it returned."""
    times, sent = [], []
    for _ in range(REPEATS + 1):
        before = bytes_sent()
        dist.barrier()  # all begin together, and none before all have looked
        start = time.perf_counter()
        result = call(*args)
        times.append(1000 * (time.perf_counter() - start))
        dist.barrier()  # the others' messages count as well
        sent.append(bytes_sent() - before)
    return statistics.median(times[1:]), statistics.median(sent[1:]), result


def look_around(world_size):
    """By rank, its node; and whether each has counters not shared with another."""
    places = [None] * world_size
    own = int(os.environ["GROUP_RANK"]), socket.gethostname()
    dist.all_gather_object(places, own)  # every rank now holds node and host of all
    nodes, hosts = zip(*places, strict=True)
    return nodes, 1 < len(set(nodes)) == len(set(hosts)) and CARDS.exists()


def by_theory(order, nodes, node):
    """What a ring in this order sends out of a node, in tensors."""
    pairs = zip(order, [*order[1:], order[0]], strict=True)
    hops = sum(nodes[a] == node != nodes[b] for a, b in pairs)  # that leave the node
    return hops * 2 * (len(order) - 1) / len(order)


def tell(rank, way, milliseconds, sent):
    """Print what a way took and sent out of the node; return both as facts."""
    out = "not counted" if sent is None else f"{sent:.2f} times the tensor"
    print(f"[rank {rank}] {way}: {milliseconds:.0f} ms, out of node: {out}", flush=True)
    return {"milliseconds": milliseconds, "sent": sent}


def sum_of_ranks(way, tensor, rank):
    """Sum a tensor full of rank + 1 over all ranks; return its least and largest."""
    way(tensor.fill_(rank + 1.0))  # every rank now holds 1 + 2 + ...
    return [edge.item() for edge in tensor.aminmax()]  # on a GPU, this waits for it


def main(rank, world_size, device):
    facts, (nodes, counted) = {}, look_around(world_size)
    # gloo's reduce is for host memory, even beside a GPU.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    tensor, expected = torch.empty(NUMBERS, device=device), sum(range(world_size + 1))
    for name, (order, way) in make_ways(rank, nodes).items():
        milliseconds, sent, total = measure(sum_of_ranks, way, tensor, rank)
        if total != [expected, expected]:
            raise AssertionError(f"{name}: the sum is {total}, expected {expected}")
        sent = sent / (4 * NUMBERS) if counted else None
        facts[name] = tell(rank, name, milliseconds, sent)
        facts[name]["theory"] = by_theory(order, nodes, nodes[rank])
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
