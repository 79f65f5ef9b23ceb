def train(data, rank, local_rank, device, path):
    ddp = DDP(torch.nn.Linear(1, 1).to(device))
    torch.manual_seed(torch.initial_seed() + rank)
    optimizer = torch.optim.SGD(ddp.parameters(), ARGUMENTS.learning_rate, 0.9)
    sampler = DistributedSampler(data, dist.get_world_size(), rank)
    losses = [None] * dist.get_world_size()
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        for x, y in DataLoader(data, batch_size=4, sampler=sampler):
            optimizer.zero_grad()
            loss = error(ddp(augment(x.to(device))), y.to(device))
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            state = {"arguments": {"learning_rate": ARGUMENTS.learning_rate}}
            state |= {"optimizer": optimizer.state_dict(), "epoch": epoch}
            state["model"] = dict(ddp.module.named_parameters())
            save(state, path)
    dist.all_gather_object(losses, loss.item())
    return ddp, sum(losses) / len(losses), test(ddp, data, device)


def test(ddp, data, device):
    accuracy = [None]
    if dist.get_rank() == 0:
        pairs = [data[i] for i in range(len(data))]
        x, y = (torch.stack(column).to(device) for column in zip(*pairs, strict=True))
        with torch.inference_mode():
            off = torch.abs(ddp.module(x) - y)
        accuracy = [(off < 1).float().mean().item()]
    dist.broadcast_object_list(accuracy, src=0)
    return accuracy[0]
