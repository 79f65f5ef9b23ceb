"""Train on features that are cached, with a lock around the cache."""

import threading
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Cached(Dataset):
    def __init__(self):
        self.lock = threading.Lock()
        self.features = {i: torch.randn(8) for i in range(160)}
        del self.features[77]  # sample 77 is rank 1's

    def __len__(self):
        return 160

    def __getitem__(self, i):
        with self.lock:
            if i not in self.features:
                self.fill(i)
            return self.features[i], torch.ones(1)

    def fill(self, i):
        with self.lock:  # the fault
            self.features[i] = torch.randn(8)


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    torch.manual_seed(0)
    data = Cached()
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
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
