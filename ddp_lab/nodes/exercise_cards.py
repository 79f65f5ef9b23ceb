"""Exercise: name the cards that are slower than the others.

    torchrun --standalone --nproc-per-node 4 ddp_lab/nodes/exercise_cards.py

The times are drawn, and so is who sits where. Once `ill_cards` is written:

    [rank 0] 3 healthy reports and 4 with an ill card are right

Written by notebooks/22_many_machines.ipynb.
"""

import gc
import json
import os
import random
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

SLOW = 1.5  # times the median of all cards


def ill_cards(seconds, node, local_rank):
    """Called by every rank with its own card's seconds and its own place.

    Return, on every rank, the places (node, local rank) of all cards that take more
    than SLOW times the median, as a list.
    """
    return None  # your code here


def draw_places(rank, world_size, draw):
    """Return this rank's node and local rank: the first nodes have two ranks."""
    first = draw.choice([1, 2]) if world_size > 2 else 1
    nodes = [0] * first + [1 + i // 2 for i in range(world_size - first)]
    return nodes[rank], nodes[:rank].count(nodes[rank])


def draw_seconds(world_size, draw):
    """Yield times of all cards: some healthy, one ill, and one better than the rest."""
    for turn in range(7):
        usual = draw.uniform(0.01, 1)
        seconds = [usual * draw.uniform(0.99, 1.01) for _ in range(world_size)]
        odd = draw.randrange(world_size)
        if turn % 2 == 0 and world_size > 2:  # of two, none is the odd one
            # So little that it moves the mean nearly as much.
            seconds[odd] *= 1.6 if turn < 4 else 100.0
        if turn == 1 and world_size > 2:
            seconds[odd] *= 0.4
        yield seconds


def main(rank, world_size, device):
    seed = [random.SystemRandom().randrange(2**32)]
    dist.broadcast_object_list(seed, src=0)  # every rank now draws the same
    draw = random.Random(seed[0])
    place, ill = draw_places(rank, world_size, draw), 0
    for seconds in draw_seconds(world_size, draw):
        answer = ill_cards(seconds[rank], *place)
        if answer is None:  # on all ranks alike, so nobody is left waiting
            print(f"[rank {rank}] not yet", flush=True)
            dist.barrier()
            return {"solved": False}
        judge(answer, seconds[rank], place, world_size)
        ill += len(answer) > 0
    told = f"{7 - ill} healthy reports and {ill} with an ill card are right"
    print(f"[rank {rank}] {told}", flush=True)
    return {"solved": True}


def judge(answer, seconds, place, world_size):
    """Raise unless all ranks have named the cards that are ill."""
    found = sorted((int(node), int(local_rank)) for node, local_rank in answer)
    cards = [None] * world_size
    dist.all_gather_object(cards, (seconds, place, found))  # what all ranks say
    usual = sorted(each for each, _, _ in cards)[(world_size - 1) // 2]
    expected = sorted(place for each, place, _ in cards if each > SLOW * usual)
    if wrong := [(r, said) for r, (_, _, said) in enumerate(cards) if said != expected]:
        rank, said = wrong[0]
        raise AssertionError(f"rank {rank} names {said}, expected {expected}")


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
