"""A GPT on a pipeline: its tied weight lies on the first stage and on the last.

    torchrun --standalone --nproc-per-node 2 ddp_lab/pipeline/tied.py

    [rank 0] blocks 0 to 1, 234432 of 456384 weights: as uncut after 3 steps

Written by notebooks/19_pipelines.ipynb.
"""

import copy
import gc
import json
import os
import tempfile
from contextlib import contextmanager

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

from ddp_lab.gpt import GPT, batch, loss_of

STEPS, MICRO_BATCHES, ROWS = 3, 4, 8


class Part(nn.Module):
    """Some of a GPT's modules, under the names that they have there."""

    def __init__(self, whole, rank, world_size):
        super().__init__()
        edges = [r * len(whole.blocks) // world_size for r in (rank, rank + 1)]
        self.is_first, self.is_last = rank == 0, rank == world_size - 1
        self.blocks = nn.ModuleDict({str(n): whole.blocks[n] for n in range(*edges)})
        if self.is_first:
            self.tokens, self.positions = whole.tokens, whole.positions
        if self.is_last:
            self.norm, self.head = whole.norm, whole.head

    def forward(self, x):  # the tokens, or (rows, time, width) from the left
        if self.is_first:
            places = torch.arange(x.size(1), device=x.device)
            x = self.tokens(x) + self.positions(places)
        for block in self.blocks.values():
            x = block(x)
        return self.head(self.norm(x)) if self.is_last else x


def sum_the_tied(part, ends):
    """Give both copies of the tied weight the gradient of both of its uses."""
    if part.is_first or part.is_last:
        copy = part.tokens if part.is_first else part.head
        dist.all_reduce(copy.weight.grad, group=ends)  # both ends hold the sum


def step(schedule, part, ends, optimizer, rows, targets):
    """Take a training step on the pipeline."""
    schedule.step(*([rows] if part.is_first else []), target=targets)
    sum_the_tied(part, ends)
    optimizer.step()
    optimizer.zero_grad()


def reload(part, device):
    """Save the parts, and load what was saved into a GPT that is in one piece."""
    names = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(names, src=0)  # all write into rank 0's folder
    dcp.save({"model": part.state_dict()}, checkpoint_id=names[0])
    state = {"model": GPT().to(device, torch.float64).state_dict()}
    dcp.load(state, checkpoint_id=names[0])
    return state["model"]


def main(rank, world_size, device):
    # Ranks that share a GPU: gloo can send and receive only what is in host memory.
    device = torch.device("cpu") if dist.get_backend() == "gloo" else device
    torch.manual_seed(0)  # the same weights on every rank
    uncut = GPT().to(device, torch.float64)
    part = Part(copy.deepcopy(uncut), rank, world_size)
    ends = dist.new_group([0, world_size - 1])
    stage = PipelineStage(part, rank, world_size, device)
    # It divides the gradients by the number of micro-batches, whose losses are means.
    schedule = Schedule1F1B(stage, MICRO_BATCHES, loss_fn=loss_of)
    sgd = [torch.optim.SGD(net.parameters(), 0.1) for net in (part, uncut)]
    for number in range(STEPS):
        rows, targets = (each.to(device) for each in batch(number, ROWS))
        step(schedule, part, ends, sgd[0], rows, targets)
        loss_of(uncut(rows), targets).backward()
        sgd[1].step()
        sgd[1].zero_grad()
    expected = uncut.state_dict()
    for name, weight in part.state_dict().items():
        torch.testing.assert_close(weight, expected[name], msg=f"{name} differs")
    for name, weight in reload(part, device).items():
        torch.testing.assert_close(weight, expected[name], msg=f"{name} saved wrong")
    blocks, held = list(part.blocks), sum(p.numel() for p in part.parameters())
    whole = sum(p.numel() for p in uncut.parameters())
    told = f"blocks {blocks[0]} to {blocks[-1]}, {held} of {whole} weights"
    print(f"[rank {rank}] {told}: as uncut after {STEPS} steps", flush=True)
    return {"held": held, "whole": whole}


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
