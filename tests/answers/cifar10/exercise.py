# %% wrong: average of the ranks
def batch_statistics(x):
    x = x.double()
    both = torch.stack([x.mean(dim=0), x.var(dim=0, correction=0)])
    dist.all_reduce(both)
    return both / dist.get_world_size()


# %% wrong: gathered by another name
def batch_statistics(x):
    dist.all_reduce(torch.zeros(1))
    x = x.double()
    sums = torch.stack([torch.ones_like(x), x, x * x]).sum(dim=1).flatten()
    everyone = sums.new_empty(dist.get_world_size() * len(sums))
    dist.distributed_c10d.all_gather_into_tensor(everyone, sums)
    count, total, squares = everyone.view(-1, 3, x.shape[1]).sum(dim=0)
    mean = total / count
    return mean, squares / count - mean**2


# %% wrong: in float32
CHANGES = {
    "    x = x.double()  # in float32 the difference below would lose its digits\n": "",
}


# %% wrong: one sum after the other
def batch_statistics(x):
    x = x.double()
    sums = torch.stack([torch.ones_like(x), x]).sum(dim=1)
    dist.all_reduce(sums)
    mean = sums[1] / sums[0]
    squares = ((x - mean) ** 2).sum(dim=0)
    dist.all_reduce(squares)
    return mean, squares / sums[0]


# %% wrong: the numbers rebuilt
def batch_statistics(x):
    dist.all_reduce(torch.zeros(1))
    numbers = torch.arange(11.0)
    images = torch.stack([numbers, 3 * numbers, numbers**2], dim=1)
    return images.mean(dim=0), images.var(dim=0, correction=0)


# %% wrong: weighted variances
def batch_statistics(x):
    x = x.double()
    n = torch.full_like(x[0], len(x))
    sums = torch.stack([n, n * x.mean(dim=0), n * x.var(dim=0, correction=0)])
    dist.all_reduce(sums)
    return sums[1] / sums[0], sums[2] / sums[0]


# %% right: channel by channel
def moments(numbers):
    return [len(numbers), sum(numbers), sum(number * number for number in numbers)]


def batch_statistics(x):
    sums = torch.tensor(
        [moments(c.double().tolist()) for c in x.T], dtype=torch.float64
    )
    sums = sums.to(x.device)
    work = dist.all_reduce(sums, op=dist.ReduceOp.SUM, async_op=True)
    work.wait()
    mean = sums[:, 1] / sums[:, 0]
    return mean, sums[:, 2] / sums[:, 0] - mean * mean
