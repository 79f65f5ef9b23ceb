def block(width, hidden):
    with torch.device("meta"):
        return nn.Sequential(
            nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width)
        )


def estimate(road, world_size, blocks, width, hidden, rows):
    model = nn.ModuleList(block(width, hidden) for _ in range(blocks))
    held = sum(p.nbytes for p in model.parameters())
    summed = {"ddp": held, "sharded": 2 * held}.get(road)
    if road == "tensor":
        summed = (2 * blocks - 1) * torch.empty(rows, width, device="meta").nbytes
    return summed * 2 * (1 - 1 / world_size)
