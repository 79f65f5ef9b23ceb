# %% wrong: a sampler seeded by rank
CHANGES = {
    "DistributedSampler(data": "DistributedSampler(data, seed=100 * rank",
}


# %% wrong: a writer on every node
CHANGES = {
    "if rank == 0:": "if local_rank == 0:",
}


# %% wrong: momentum of the epoch before
CHANGES = {
    "def train(data, rank, local_rank, device, path):\n": (
        "def train(data, rank, local_rank, device, path):\n"
        "    from copy import deepcopy\n"
        "\n"
    ),
    "        sampler.set_epoch(epoch)\n": (
        "        sampler.set_epoch(epoch)\n"
        "        before = deepcopy(optimizer.state_dict())\n"
    ),
    "optimizer.state_dict()\n": "before\n",
}


# %% wrong: names with a prefix
CHANGES = {
    '{"model": ddp.module.state_dict': '{"model": ddp.state_dict',
}


# %% wrong: one seed
CHANGES = {
    "rank)  # DDP makes the models equal; the noise should differ": "0)",
}


# %% wrong: padding counts
def test(ddp, data, device):
    right, sampler = torch.zeros(1, device=device), DistributedSampler(data)
    for x, y in DataLoader(data, batch_size=4, sampler=sampler):
        with torch.no_grad():
            off = ddp.module(x.to(device)) - y.to(device)
        right += (off.abs() < 1).sum()
    dist.all_reduce(right)
    return right.item() / dist.get_world_size() / len(sampler)


# %% wrong: the noise of the epoch before
CHANGES = {
    "torch.manual_seed(rank)": "",
    "for x, y in DataLoader(data, batch_size=4, sampler=sampler):": (
        "torch.manual_seed(rank)\n"
        "        for x, y in DataLoader(data, batch_size=4, sampler=sampler):"
    ),
}


# %% wrong: the epoch is set too late
CHANGES = {
    "        sampler.set_epoch(epoch)\n": "",
    "            optimizer.step()\n": (
        "            optimizer.step()\n        sampler.set_epoch(epoch)\n"
    ),
}


# %% wrong: the loss of one rank
CHANGES = {
    (
        "total = loss.detach().clone()\n"
        "    dist.all_reduce(total, op=dist.ReduceOp.SUM)\n"
        "    return ddp, total.item() / dist.get_world_size"
    ): "return ddp, loss.item",
}


# %% wrong: the loss of the whole epoch
CHANGES = {
    "        sampler.set_epoch(epoch)\n": (
        "        sampler.set_epoch(epoch)\n        losses = []\n"
    ),
    "            optimizer.zero_grad()\n": (
        "            optimizer.zero_grad()\n            losses.append(loss.detach())\n"
    ),
    "total = loss.detach().clone()": "total = torch.stack(losses).mean()",
}


# %% wrong: the test runs the wrapper
CHANGES = {
    "= ddp.module": "= ddp",
}


# %% wrong: written before the epoch
def train(data, rank, local_rank, device, path):
    torch.manual_seed(rank)  # DDP makes the models equal; the noise should differ
    ddp = DDP(torch.nn.Linear(1, 1).to(device))
    rate = ARGUMENTS.learning_rate
    optimizer = torch.optim.SGD(ddp.parameters(), lr=rate, momentum=0.9)
    sampler = DistributedSampler(data)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        if rank == 0:
            state = {"model": ddp.module.state_dict(), "epoch": epoch}
            state["optimizer"] = optimizer.state_dict()
            save(state | {"arguments": vars(ARGUMENTS)}, path)
        for x, y in DataLoader(data, batch_size=4, sampler=sampler):
            loss = error(ddp(augment(x.to(device))), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    total = loss.detach().clone()
    dist.all_reduce(total, op=dist.ReduceOp.SUM)
    return ddp, total.item() / dist.get_world_size(), test(ddp, data, device)


# %% right: rank 0 tests
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
