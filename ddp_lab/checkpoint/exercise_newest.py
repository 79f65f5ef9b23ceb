"""Exercise: every rank wrote its own part of each checkpoint, and then came storms.

    torchrun --standalone --nproc-per-node 2 ddp_lab/checkpoint/exercise_newest.py

After each storm, find the newest step from which all ranks can go on. Fill in
newest_whole():

    [rank 0] not yet

Written by notebooks/A3_sharded_checkpoints.ipynb.
"""

import gc
import json
import os
import random
import zipfile
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

FLOATS = 1000  # in a rank's part


def newest_whole(parts):
    """Return the newest step whose part is sound on *every* rank; the same on all.

    Args:
        parts: {step: path} of this rank's own files. No rank can see another's. A
            file may be cut short, or have zeros where some of its numbers were; sound
            files hold zeros, too.

    Returns:
        The step, as an int; `zipfile` is imported. At least one step is sound on all.
        Target: 3 after the first storm, and the right step after four that are drawn.
    """
    return None  # your code here


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
        part[: random.randrange(FLOATS // 2)] = 0  # zeros by nature, few or many
        torch.save({"step": step, "part": part}, path)
        whole, numbers = path.read_bytes(), part.numpy().tobytes()
        if kinds[rank] == "cut":
            path.write_bytes(whole[: random.randrange(len(whole))])
        elif kinds[rank] == "zeros":
            zeros = bytes(random.randrange(40, len(numbers) // 20, 4))  # few
            lost = numbers[len(numbers) // 2 :][: len(zeros)]
            path.write_bytes(whole.replace(lost, zeros))
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
