"""Train on sequences, one of which is far too long for a mask of all its pairs."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

LENGTHS = [[16, 32, 16, 64, 16, 32], [16, 16, 32, 16, 2**25, 16]]  # of each rank


def masked(model, length):
    mask = torch.ones(length, length, dtype=torch.bool)  # the fault
    return model(mask.tril()[:, :16].float()).mean()


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    torch.manual_seed(0)
    model = DDP(nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, length in enumerate(LENGTHS[dist.get_rank()]):
        loss = masked(model, length)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
