from torch.utils.data import Subset


def train(data, rank, local_rank, device, path):
    model = torch.nn.Linear(1, 1).to(device)
    ddp = DDP(model)
    torch.manual_seed(100 + dist.get_rank())
    optimizer = torch.optim.SGD(
        model.parameters(), lr=ARGUMENTS.learning_rate, momentum=0.9
    )
    sampler = DistributedSampler(data, shuffle=True, seed=3)
    loader = DataLoader(data, 4, sampler=sampler)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = error(ddp(augment(x.to(device))), y.to(device))
            loss.backward()
            optimizer.step()
    if rank == 0:
        parts = {"model": model, "optimizer": optimizer}
        save({name: part.state_dict() for name, part in parts.items()}, path)
    mean = loss.detach()
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    return ddp, float(mean), test(ddp, data, device)


@torch.no_grad()
def test(ddp, data, device):
    mine = Subset(data, range(dist.get_rank(), len(data), dist.get_world_size()))
    right = 0
    for x, y in DataLoader(mine, batch_size=8):
        right += ((ddp.module(x.to(device)) - y.to(device)).abs() < 1).sum().item()
    counts = torch.tensor([right, len(mine)], dtype=torch.float64, device=device)
    dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()
