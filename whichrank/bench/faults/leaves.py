"""Train until the loss is low enough, which each rank decides by itself."""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    torch.manual_seed(0)
    x, y = torch.randn(160, 8), torch.randn(160, 1)
    y[1::2] /= 100  # rank 1 has the easier half
    data = TensorDataset(x, y)
    sampler = DistributedSampler(data, shuffle=False)
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, (x, y) in enumerate(DataLoader(data, batch_size=8, sampler=sampler)):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
        if loss < 0.4 and step > 2:
            sys.exit()  # the fault
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
