"""Exercise: name the cards that are slower than the others.

    torchrun --standalone --nproc-per-node 5 ddp_lab/nodes/exercise_cards.py

The times are drawn, and so is who sits where. Once `ill_cards` is written:

    [rank 0] 3 healthy reports and 4 with an ill card are right
"""

import json
import random

import torch.distributed as dist

SLOW = 1.5  # times the median of all cards


def ill_cards(seconds, node, local_rank):
    return None  # the cell's function stands here


def draw_places(rank, world_size, draw):
    """Return this rank's node and local rank: the first nodes have two ranks."""
    first = draw.choice([1, 2]) if world_size > 2 else 1
    nodes = [0] * first + [1 + i // 2 for i in range(world_size - first)]
    return nodes[rank], nodes[:rank].count(nodes[rank])


def draw_seconds(world_size, draw):
    """Yield times of all cards: healthy ones, one or two ill, one that is better."""
    for turn in range(7):
        usual = draw.uniform(0.01, 1)
        seconds = [usual * draw.uniform(0.99, 1.01) for _ in range(world_size)]
        # The median is a healthy card's with two of five ill, or one of three.
        count = 2 if turn % 4 == 0 and world_size > 4 else 1
        for odd in draw.sample(range(world_size), count if world_size > 2 else 0):
            if turn % 2 == 0:  # so little that it moves the mean nearly as much
                seconds[odd] *= 1.6 if turn < 4 else 100.0
            elif turn == 1:
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
