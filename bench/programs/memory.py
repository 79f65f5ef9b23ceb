"""Tell what a rank's device holds, under DDP or under fully_shard, in bytes.

    torchrun --standalone --nproc-per-node 2 memory.py WAY

Each way trains the same GPT with Adam, in processes of its own: what NCCL still holds
of another way would be counted as freed. It says what the allocator holds after the
weights, after a backward pass and after a step, and the most that it ever held.
"""

import gc
import json
import sys

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from ddp_lab.gpt import GPT, Config, loss_of
from ddp_lab.start.hello import process_group

CONFIG = Config(context=256, layers=12, heads=12, width=768)
ROWS = 8  # of a batch, on each rank


def cut(way: str, model: GPT, device: torch.device, ranks: int) -> nn.Module:
    """Return the model as one of the ways has it."""
    if way == "DDP":
        return nn.parallel.DistributedDataParallel(model)
    mesh = init_device_mesh(device.type, (ranks,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(way: str, device: torch.device, ranks: int) -> dict[str, int]:
    """Return the bytes that this rank's device holds, by the moment."""
    memory = torch.get_device_module(device.type)
    gc.collect()
    before = memory.memory_allocated()
    model = GPT(CONFIG).to(device)
    numbers = sum(p.numel() for p in model.parameters())
    model = cut(way, model, device, ranks)
    optimizer = torch.optim.Adam(model.parameters())
    held = {"parameters": numbers}
    for step in range(2):
        x = torch.randint(CONFIG.vocab, (ROWS, CONFIG.context), device=device)
        gc.collect()
        held["weights" if not step else "of a step"] = (
            memory.memory_allocated() - before
        )
        memory.reset_peak_memory_stats()
        loss = loss_of(model(x), x)
        held["with activations"] = memory.memory_allocated() - before
        loss.backward()
        held["most"] = memory.max_memory_allocated() - before
        held["with gradients"] = memory.memory_allocated() - before
        optimizer.step()
        held["with Adam"] = memory.memory_allocated() - before
        optimizer.zero_grad()
    return held


def main(way: str) -> None:
    with process_group() as (_, ranks, device):
        print(json.dumps(train(way, device, ranks)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
