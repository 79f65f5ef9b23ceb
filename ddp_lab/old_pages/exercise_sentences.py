"""Exercise: eight sentences about DDP and its like. Which of them hold?

    torchrun --standalone --nproc-per-node 2 ddp_lab/old_pages/exercise_sentences.py

The program tries each of them, and then says only how many verdicts are right:

    [rank 0] not yet

Written by notebooks/A4_what_old_pages_say.ipynb.
"""

import gc
import json
import os
import warnings
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DistributedSampler

ANSWERS = []  # they come before the measurement


def verdicts():
    """Which sentences hold, on every backend and for any number of ranks from two up?

    1 After DDP(model), every rank has rank 0's weights, whatever its seed was.
    2 After backward(), a rank's .grad is the gradient of that rank's own loss.
    3 DDP's gradient is that of the mean over all samples, also for unequal batches.
    4 With equal batches, the momentum of SGD is the same on all ranks under DDP.
    5 DistributedSampler gives each sample to exactly one rank.
    6 After a training step, BatchNorm's running mean is that of all ranks' samples.
    7 The model that was wrapped can load ddp.state_dict().
    8 A rank outside a group that calls the group's all_reduce keeps its own number.

    Returns:
        The eight verdicts, as in {1: True, 2: False, ...}.
    """
    return None  # your verdicts here


def samples(sizes, device):
    """This rank's share of 1, 2, 3, ..., and the mean of all: which is the gradient."""
    numbers = torch.arange(1.0, sum(sizes) + 1, device=device).view(-1, 1)
    return numbers.split(sizes)[dist.get_rank()], numbers.mean().item()


def line(device):
    """A model whose gradient is its samples' mean; every rank has other weights."""
    torch.manual_seed(dist.get_rank())
    return nn.Linear(1, 1, bias=False).to(device)


def gradient(sizes, device):
    """After backward(): DDP's gradient, this rank's own, all samples', the momentum."""
    mine, everybody = samples(sizes, device)
    ddp = DDP(line(device))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    ddp(mine).mean().backward()  # every rank now holds the mean of all gradients
    optimizer.step()
    momentum = optimizer.state[ddp.module.weight]["momentum_buffer"].item()
    return ddp.module.weight.grad.item(), mine.mean().item(), everybody, momentum


def same(number):
    """Whether all ranks bring this number."""
    numbers = [None] * dist.get_world_size()
    dist.all_gather_object(numbers, number)  # every rank now holds all numbers
    return len(set(numbers)) == 1


def running_mean(device):
    """BatchNorm's running mean after one training step, and that of all samples."""
    mine, everybody = samples([4] * dist.get_world_size(), device)
    norm = nn.BatchNorm1d(1, momentum=1.0).to(device)
    DDP(norm)(mine).sum().backward()
    return norm.running_mean.item(), everybody


def outsider(device):
    """What the last rank holds after calling the all_reduce of the others' group."""
    others = dist.new_group(list(range(dist.get_world_size() - 1)))
    number = torch.tensor([float(dist.get_rank())], device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # The members now hold their sum, the outsider a warning that we do not show.
        dist.all_reduce(number, group=others)
    return (
        dist.get_rank() < dist.get_world_size() - 1 or number.item() == dist.get_rank()
    )


def measured(device):
    """Each sentence, tried out on this rank."""
    if not ANSWERS:
        raise RuntimeError("first the verdicts, then the measurement")
    world_size = dist.get_world_size()
    ddp = DDP(line(device))
    got, own, _, momentum = gradient([4] * world_size, device)
    unequal, _, fair, _ = gradient([4] * (world_size - 1) + [1], device)
    mean, mean_of_all = running_mean(device)
    dealt = [
        i
        for r in range(world_size)
        for i in DistributedSampler(range(61), world_size, r)
    ]
    return {
        1: same(ddp.module.weight.item()),
        2: got == own,
        3: abs(unequal - fair) < 1e-5,
        4: same(momentum),
        5: sorted(dealt) == list(range(61)),
        6: abs(mean - mean_of_all) < 1e-5,
        7: set(ddp.state_dict()) == set(ddp.module.state_dict()),
        8: outsider(device),
    }


def main(rank, world_size, device):
    answer = verdicts()
    if not answer:
        print(f"[rank {rank}] not yet", flush=True)
        dist.barrier()  # one that leaves at once fails those that still connect
        return {"solved": False}
    ANSWERS.append(answer)
    votes = [None] * world_size
    dist.all_gather_object(votes, measured(device))  # all now hold what all found
    # A sentence holds if it does on every rank.
    expected = {number: all(vote[number] for vote in votes) for number in votes[0]}
    right = sum(
        number in answer and bool(answer[number]) is fact
        for number, fact in expected.items()
    )
    if right < len(expected):
        raise AssertionError(f"{right} of {len(expected)} verdicts are right")
    print(f"[rank {rank}] {right} of {len(expected)} verdicts are right", flush=True)
    return {"solved": True, "right": right}


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
