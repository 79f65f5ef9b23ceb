"""Exercise: every rank wrote its own part of each checkpoint, and then came storms.

After each storm, find the newest step from which all ranks can go on. Fill in
newest_whole():

    [rank 0] not yet
"""

import json
import random
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist

FLOATS = 1000  # in a rank's part


def newest_whole(parts):
    return None  # the cell's function stands here


def first_storm(world_size):
    """Return, by step, how each rank's file is damaged: the newest sound step is 3."""
    sound, all_cut = [""] * world_size, ["cut"] * world_size
    first, last = ["zeros", *sound[1:]], [*sound[1:], "zeros"]
    return {3: sound, 6: last, 9: first, 12: [*sound[1:], "cut"], 15: all_cut}


def draw_storm(chance, place, world_size):
    """Draw six steps and the damage to them; the newest sound one has this place."""
    damage = {}
    for step in sorted(chance.sample(range(1, 1000), 6)):
        kinds = [chance.choice(["", "cut", "zeros"]) for _ in range(world_size)]
        if len(damage) in (place - 1, place):
            kinds = [""] * world_size
        elif len(damage) > place and not any(kinds):
            kinds[chance.randrange(world_size)] = "zeros"
        damage[step] = kinds
    return damage


def storms(world_size):
    """Return a known storm and four that rank 0 draws: the same ones on all ranks."""
    seed = [random.SystemRandom().random()]
    dist.broadcast_object_list(seed, src=0)  # all now hold rank 0's
    chance = random.Random(seed[0])
    drawn = [draw_storm(chance, p, world_size) for p in chance.sample(range(6), 4)]
    return [first_storm(world_size), *drawn]


def write_parts(folder, damage, rank):
    """Write this rank's file of each step, and damage it; return {step: path}."""
    parts = {}
    for step, kinds in damage.items():
        path = parts[step] = Path(folder, f"step_{step}.pt")
        part = torch.randn(FLOATS)
        begin = random.randrange(FLOATS)  # zeros by nature, few or many, anywhere
        part[begin : begin + random.randrange(FLOATS // 2)] = 0
        torch.save({"step": step, "part": part}, path)
        whole, numbers = path.read_bytes(), part.numpy().tobytes()
        if kinds[rank] == "cut":
            path.write_bytes(whole[: random.randrange(len(whole))])
        elif kinds[rank] == "zeros":
            at = 4 * random.choice(part.nonzero()).item()  # where a number is no zero
            lost = numbers[at:][: random.randrange(40, len(numbers) // 20, 4)]  # few
            path.write_bytes(whole.replace(lost, bytes(len(lost))))
            assert zipfile.is_zipfile(path), "a check of the form does not see it"
    return parts


def main(rank, world_size, device):
    answers = []
    for damage in storms(world_size):
        # A folder for each rank, as if each had its own disk.
        with TemporaryDirectory() as folder:
            answer = newest_whole(write_parts(folder, damage, rank))
        if answer is None:  # on all ranks alike, so nobody is left waiting
            print(f"[rank {rank}] not yet", flush=True)
            print(json.dumps({"solved": False}), flush=True)
            dist.barrier()  # to leave now would cut off those still joining
            return
        expected = max(step for step, kinds in damage.items() if not any(kinds))
        if answer != expected:
            told = f"step {answer} of {list(damage)}"
            raise AssertionError(f"{told}, expected {expected}")
        answers.append(int(answer))
    print(f"[rank {rank}] goes on from step {answers[0]}", flush=True)
    return {"solved": True, "step": answers[0]}
