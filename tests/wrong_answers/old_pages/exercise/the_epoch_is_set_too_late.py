def train(data, rank, local_rank, device, path):
    torch.manual_seed(rank)  # DDP makes the models equal; the noise should differ
    ddp = DDP(torch.nn.Linear(1, 1).to(device))
    rate = ARGUMENTS.learning_rate
    optimizer = torch.optim.SGD(ddp.parameters(), lr=rate, momentum=0.9)
    sampler = DistributedSampler(data)
    for epoch in range(EPOCHS):
        for x, y in DataLoader(data, batch_size=4, sampler=sampler):
            loss = error(ddp(augment(x.to(device))), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        sampler.set_epoch(epoch)
        if rank == 0:
            state = {"model": ddp.module.state_dict(), "epoch": epoch}
            state["optimizer"] = optimizer.state_dict()
            save(state | {"arguments": vars(ARGUMENTS)}, path)
    total = loss.detach().clone()
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    return ddp, total.item() / dist.get_world_size(), test(ddp, data, device)


def test(ddp, data, device):
    right = torch.zeros(1, device=device)
    for i in range(dist.get_rank(), len(data), dist.get_world_size()):
        x, y = data[i]
        with torch.no_grad():
            off = ddp.module(x.to(device)) - y.to(device)
        right += (off.abs() < 1).sum()
    dist.all_reduce(right)
    return right.item() / len(data)
