"""Exercise: ranks come and go, and still every sample is used once in an epoch.

    torchrun --standalone --nproc-per-node 2 ddp_lab/elastic/exercise_sampler.py

After every two steps the number of ranks is another. Fill in next_samples():

    [rank 0] not yet

Written by notebooks/23_machines_that_fail.ipynb.
"""

import gc
import json
import os
from collections import Counter
from contextlib import contextmanager
from itertools import combinations

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

SAMPLES, BATCH = 53, 4  # in an epoch; of one rank in one step, at most
EPOCHS, STEPS_OF_A_LIFE = 3, 2


def next_samples(epoch, state, rank, world_size):
    """Return this rank's samples of the next step, and the state after that step.

    Args:
        epoch: its number; the order is shuffled anew in each epoch.
        state: what you returned after the step before, on this rank or another: a
            number, or a list of numbers; None at the beginning of each epoch.
        rank: from 0 to world_size - 1.
        world_size: how many ranks take this step; the step before may have had others.

    Returns:
        A list of at most BATCH numbers below SAMPLES, empty when the epoch is over, and
        the state, the same on all ranks. Target: in each epoch all ranks together use
        every sample exactly once, with full batches as long as there are enough.
    """
    return None  # your code here


def one_step(*step):
    """Take a step, and once more as after a restart: the state must be enough."""
    answer, again = (next_samples(*json.loads(json.dumps(step))) for _ in range(2))
    assert again == answer, f"the same step, repeated: {again} instead of {answer}"
    return answer


def use_all(epoch, rank, world_size):
    """Return the samples of an epoch in the order of their use; None if unsolved."""
    state, used, step = None, [], 0
    while True:
        # World size, world size - 1, ..., 1, and again: those beyond are not there.
        present = world_size - step // STEPS_OF_A_LIFE % world_size
        answer = [], None
        if rank < present:
            answer = one_step(epoch, state, rank, present)
        answers = [None] * world_size
        dist.all_gather_object(answers, answer)  # all now hold every rank's answer
        if answers[0] is None:
            return None

        samples, states = zip(*answers[:present], strict=True)
        new = sum(samples, [])
        assert states.count(states[0]) == present, f"the states differ: {states}"
        assert max(map(len, samples)) <= BATCH, f"more than {BATCH}: {samples}"
        enough = min(BATCH * present, max(SAMPLES - len(used), 0))
        assert len(new) >= enough, f"{len(new)} samples in a step, expected {enough}"
        if not new:
            return used
        used, step = used + new, step + 1
        assert len(used) <= 2 * SAMPLES, "the epoch does not end"
        state = states[0]


def neighbors(used):
    """Return the pairs of samples that were used one after the other."""
    return {frozenset(pair) for pair in zip(used, used[1:], strict=False)}


def main(rank, world_size, device):
    epochs = [use_all(epoch, rank, world_size) for epoch in range(EPOCHS)]
    solved = epochs[0] is not None
    if solved:
        for epoch, used in enumerate(epochs):
            wrong = {i: Counter(used)[i] for i in range(SAMPLES) if used.count(i) != 1}
            assert not wrong, f"epoch {epoch}: not used once, but so often: {wrong}"
        for one, other in combinations(range(EPOCHS), 2):
            common = len(neighbors(epochs[one]) & neighbors(epochs[other]))
            # Two shuffled orders have about two in common.
            shuffled = f"epochs {one} and {other}: {common} equal pairs of neighbors"
            assert common < SAMPLES / 4, shuffled
    told = f"{SAMPLES} samples, each once in each epoch" if solved else "not yet"
    print(f"[rank {rank}] {told}", flush=True)
    print(json.dumps({"solved": solved}), flush=True)
    dist.barrier()  # to leave now would cut off those still joining


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
