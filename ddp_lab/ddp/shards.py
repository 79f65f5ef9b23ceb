"""Which samples a rank gets, and what that does to the averages over all ranks.

    torchrun --standalone --nproc-per-node 2 ddp_lab/ddp/shards.py

Sample i has the gradient i, so with two ranks the mean of all ten is 5.5.

Written by notebooks/03_ddp_basics.ipynb.
"""

import gc
import json
import os
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DistributedSampler

EACH, TESTED, EPOCHS = 5, 13, 3  # samples per rank, samples to evaluate, epochs


def gradients(shards, loss_of, rank, device):
    """The gradient of this rank's own loss, and what DDP makes of all of them."""
    line = torch.nn.Linear(1, 1, bias=False).to(device)
    shard = shards[rank].view(-1, 1).to(device)  # (samples of this rank, 1)
    loss_of(line(shard)).backward()
    own = line.weight.grad.item()
    line.zero_grad()
    ddp_line = DDP(line)  # the name keeps it alive: its hooks are needed in backward()
    loss = loss_of(ddp_line(shard))
    loss.backward()  # every rank now holds the mean of all ranks' gradients
    ddp, expected = line.weight.grad.item(), sum(map(loss_of, shards)) / len(shards)
    if abs(ddp - expected) > 1e-4:
        raise AssertionError(f"DDP made {ddp}, expected {expected}")
    span = f"{loss_of.__name__} of samples {int(shard[0])} to {int(shard[-1])}"
    what = f"own gradient {own:.1f}, after DDP {ddp:.1f}"
    print(f"[rank {rank}] {span}: {what}", flush=True)
    return {"own": own, "ddp": ddp, "samples": len(shard)}


def shuffled(rank, world_size):
    """This rank's samples in each epoch, in another order than in the one before."""
    sampler = DistributedSampler(range(TESTED), world_size, rank)
    epochs = []
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)  # without it all epochs repeat epoch 0
        epochs.append(list(sampler))
        mine = torch.tensor(epochs[-1])
        everyone = [torch.empty_like(mine) for _ in range(world_size)]
        dist.all_gather(everyone, mine)  # every rank now holds the samples of all ranks
        if set(torch.cat(everyone).tolist()) != set(range(TESTED)):
            raise AssertionError(f"epoch {epoch} leaves samples out: {everyone}")
        if epoch and epochs[-1] == epochs[-2]:
            raise AssertionError(f"epoch {epoch} has the order of epoch {epoch - 1}")
        if epoch < 2:
            print(f"[rank {rank}] epoch {epoch}: samples {epochs[-1]}", flush=True)
    return epochs


def accuracy(rank, world_size):
    """The accuracy of a model wrong on sample 0 only, with the padding and without."""
    sampler = DistributedSampler(range(TESTED), world_size, rank, shuffle=False)
    counts = torch.zeros(4)  # right and seen; right and seen without the padding
    for turn, sample in enumerate(sampler):
        right, real = sample != 0, turn * world_size + rank < TESTED
        counts += torch.tensor([right, 1, right and real, real])
    dist.all_reduce(counts)  # every rank now holds the counts of all ranks
    padded, exact = (counts[0] / counts[1]).item(), (counts[2] / counts[3]).item()
    what = f"accuracy {padded:.3f} with the padding, {exact:.3f} without"
    print(f"[rank {rank}] {what}", flush=True)
    if abs(exact - (TESTED - 1) / TESTED) > 1e-6:
        raise AssertionError(f"accuracy {exact}, expected {TESTED - 1} of {TESTED}")
    return {"padded": padded, "exact": exact}


def main(rank, world_size, device):
    samples = torch.arange(1.0, EACH * world_size + 1)  # (5 * world_size,)
    sizes = [EACH] * world_size
    equal = samples.split(sizes)
    sizes[0] += 3  # and the last rank loses what rank 0 gains
    sizes[-1] -= 3
    unequal = samples.split(sizes)
    cases = {
        "equal": gradients(equal, torch.mean, rank, device),
        "unequal": gradients(unequal, torch.mean, rank, device),
        "summed": gradients(equal, torch.sum, rank, device),
    }
    epochs = shuffled(rank, world_size)
    return cases | {"epochs": epochs} | accuracy(rank, world_size)


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
