from torch.distributed import _functional_collectives as collectives
from torch.func import functional_call
from torch.utils.data import TensorDataset


def mean(number, device):
    """The mean over the ranks, as a new tensor."""
    number = torch.as_tensor(number, dtype=torch.float64, device=device)
    total = collectives.all_reduce(number, "sum", dist.group.WORLD)
    return (total / dist.get_world_size()).item()


def train(data, rank, local_rank, device, path):
    noise = torch.Generator().manual_seed(2 * rank + 1)
    torch.set_rng_state(noise.get_state())
    ddp = DDP(torch.nn.Linear(1, 1).to(device), broadcast_buffers=False)
    sgd = torch.optim.SGD(
        [{"params": [*ddp.module.parameters()]}],
        lr=ARGUMENTS.learning_rate,
        momentum=0.9,
    )
    for epoch in range(EPOCHS):
        sampler = DistributedSampler(data, seed=epoch)
        for x, y in DataLoader(data, 4, sampler=sampler):
            sgd.zero_grad()
            (loss := error(ddp(augment(x.to(device))), y.to(device))).backward()
            sgd.step()
    if rank == 0:
        kept = {name: p.detach().cpu() for name, p in ddp.module.named_parameters()}
        save(dict(model=kept, sgd=sgd.state_dict()), path)
    return ddp, mean(loss.detach(), device), test(ddp, data, device)


def test(ddp, data, device):
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = [data[i] for i in range(rank, len(data), size)]
    x, y = TensorDataset(*map(torch.stack, zip(*mine, strict=True))).tensors
    weights = {name: p.detach() for name, p in ddp.module.state_dict().items()}
    off = functional_call(ddp.module, weights, (x.to(device),)) - y.to(device)
    return mean((off.abs() < 1).sum(), device) * size / len(data)
