"""Exercise: micro-batches with padding, whose gradients add up to the whole batch's.

    torchrun --standalone --nproc-per-node 2 ddp_lab/pipeline/exercise_tokens.py

Fill in micro_loss(), and the pipeline trains with it. Until then:

    [rank 0] not yet

Written by notebooks/19_pipelines.ipynb.
"""

import copy
import gc
import json
import os
import random
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

PADDING = -100  # the target of a position that does not count
WIDTH, ROWS = 12, 6  # rows of a micro-batch


def micro_loss(logits, targets, all_targets):
    """Return the loss of one micro-batch, so that all of them add up to the batch's.

    logits: (rows, 12); targets: (rows,), PADDING where a row does not count;
    all_targets: those of the whole batch. The batch's loss is the mean over all rows
    that count. A micro-batch may have no such row.
    """
    return None  # your code here


def case(world_size, m, device):
    """A net, a batch and targets, of which some micro-batches have few or none."""
    seed = torch.tensor(random.randrange(2**31))
    dist.broadcast(seed, src=0)  # all ranks draw what rank 0 draws
    torch.manual_seed(seed.item())
    net = nn.Sequential(
        *(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(world_size))
    )
    batch = torch.randn(m * ROWS, WIDTH)
    targets = torch.randint(WIDTH, (m, ROWS))
    for i, row in enumerate(targets):
        row[torch.randperm(ROWS)[: (i * ROWS) // (m - 1)]] = PADDING
    targets = targets[torch.randperm(m)]  # one is whole, and one has only padding
    return net.to(device), batch.to(device), targets.flatten().to(device)


def train_step(net, batch, targets, m):
    """Go through the pipeline once; return this rank's part of the net, and the losses,
    which the last rank has."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    part = copy.deepcopy(net[rank])
    stage = PipelineStage(part, rank, world_size, batch.device)
    # scale_grads=False: the micro-batches' gradients are added up as they are.
    schedule = Schedule1F1B(
        stage,
        m,
        loss_fn=lambda logits, own: micro_loss(logits, own, targets),
        scale_grads=False,
    )
    losses = []
    schedule.step(*([batch] if rank == 0 else []), target=targets, losses=losses)
    return part, losses


def main(rank, world_size, device):
    # Ranks that share a GPU: gloo can send and receive only what is in host memory.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    if micro_loss(torch.zeros(1, 2), torch.tensor([0]), torch.tensor([0])) is None:
        print(f"[rank {rank}] not yet", flush=True)
        dist.barrier()  # to leave now would cut off those that are still joining
        return {"solved": False}
    for m in (world_size, 2 * world_size, 3 * world_size):
        net, batch, targets = case(world_size, m, device)
        loss = F.cross_entropy(net(batch), targets, ignore_index=PADDING)
        loss.backward()
        part, losses = train_step(net, batch, targets, m)
        for p, e in zip(part.parameters(), net[rank].parameters(), strict=True):
            torch.testing.assert_close(p.grad, e.grad, msg="gradient differs")
        if losses:
            torch.testing.assert_close(sum(losses), loss, msg="sum of losses differs")
    print(f"[rank {rank}] as the whole batch, three times", flush=True)
    return {"solved": True}


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
