"""Train on a list of measurements, one of which cannot be read."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

ROWS = [f"{i % 7}.5,{i % 3}" for i in range(160)]
ROWS[77] = "n/a,2"  # sample 77 is rank 1's


class Measurements(Dataset):
    def __len__(self):
        return len(ROWS)

    def __getitem__(self, i):
        x, y = ROWS[i].split(",")
        return torch.tensor([float(x)]), torch.tensor([float(y)])  # the fault


def main():
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    model = DDP(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = Measurements()
    sampler = DistributedSampler(data, shuffle=False)
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
