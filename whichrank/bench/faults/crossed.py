"""Train, average the loss over the ranks, and meet once rank 0 has saved."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(160, 8), torch.randn(160, 1))
    sampler = DistributedSampler(data, shuffle=False)
    model = DDP(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, (x, y) in enumerate(DataLoader(data, batch_size=8, sampler=sampler)):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    total = loss.detach()
    if dist.get_rank() == 0:
        dist.all_reduce(total)  # the fault
        print(f"final loss {total.item() / 2:.3f}", flush=True)
        dist.barrier()
    else:
        dist.barrier()  # the fault
        dist.all_reduce(total)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
