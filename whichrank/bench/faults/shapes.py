"""Train, and count the labels of the samples over all ranks."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    torch.manual_seed(0)
    x, labels = torch.randn(160, 8), torch.arange(160) // 2 % 4
    labels[77] = 6  # sample 77 is rank 1's
    data = TensorDataset(x, labels)
    sampler = DistributedSampler(data, shuffle=False)
    model = DDP(nn.Linear(8, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    seen = []
    for step, (x, y) in enumerate(DataLoader(data, batch_size=8, sampler=sampler)):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append(y)
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    counts = torch.bincount(torch.cat(seen))  # as long as the largest label asks
    dist.all_reduce(counts)  # the fault
    if dist.get_rank() == 0:
        print(f"labels {counts.tolist()}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
