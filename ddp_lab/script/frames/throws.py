"""How far does a ball fly? A network learns it, on one device."""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, RATE, MOMENTUM, WARM_UP = 96, 0.1, 0.9, 30


def throws(size, seed):
    """Speed, angle and height of some throws, each from 0 to 1, and their lengths."""
    x = torch.rand(size, 3, generator=torch.Generator().manual_seed(seed))
    speed, angle, height = 5 + 15 * x[:, 0], 1.4 * x[:, 1], 2 * x[:, 2]
    up, along = speed * angle.sin(), speed * angle.cos()
    flight = (up + (up**2 + 2 * 9.81 * height).sqrt()) / 9.81  # seconds
    return TensorDataset(x, along * flight / 10)  # (size, 3), and (size,) in 10 m


def build():
    return nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 1), nn.Flatten(0))


@torch.no_grad()
def mean_error(model, loader, device):
    total = 0.0
    for x, y in loader:
        total += (model(x.to(device)) - y.to(device)).abs().sum().item()
    return total / len(loader.dataset)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--output", type=Path, default=Path("build/script"))
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    train, test = throws(965, seed=1), throws(13, seed=166)
    loader = DataLoader(train, BATCH, shuffle=True)
    test_loader = DataLoader(test, BATCH)
    model = build().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=WARM_UP)
    for epoch in range(args.epochs):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            warm_up.step()
        error = mean_error(model, test_loader, device)
        print(f"epoch {epoch}: loss {loss:.3f}, error {error:.3f}")
        torch.save(model.state_dict(), args.output / "checkpoint.pt")


if __name__ == "__main__":
    main()
