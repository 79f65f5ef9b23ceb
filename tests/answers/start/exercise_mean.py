# %% wrong: mean of the means
def mean_of_all(mine):
    mean = mine.mean()
    dist.all_reduce(mean)
    return mean / dist.get_world_size()


# %% wrong: only rank 0 knows
def mean_of_all(mine):
    both = torch.stack([mine.sum(), mine.new_tensor(len(mine))])
    dist.reduce(both, dst=0)
    return both[0] / both[1] if dist.get_rank() == 0 else mine.mean()


# %% right: all lists
def mean_of_all(mine):
    lists = [None] * dist.get_world_size()
    dist.all_gather_object(lists, mine.tolist())
    numbers = [number for each in lists for number in each]
    return sum(numbers) / len(numbers)


# %% right: reduced to the last
def mean_of_all(mine):
    last = dist.get_world_size() - 1
    pair = torch.tensor([float(mine.sum()), len(mine)], dtype=mine.dtype).to(
        mine.device
    )
    dist.reduce(pair, dst=last, op=dist.ReduceOp.SUM)
    mean = pair[:1] / pair[1:]
    dist.broadcast(mean, src=last)
    return mean


# %% right: sums gathered
def mean_of_all(mine):
    pair = torch.stack((mine.sum(), torch.ones_like(mine).sum()))
    pairs = pair.new_empty(2 * dist.get_world_size())
    dist.all_gather_into_tensor(output_tensor=pairs, input_tensor=pair)
    total, count = pairs.view(-1, 2).sum(dim=0)
    return total / count


# %% right: two sums at once
def mean_of_all(mine):
    total, count = mine.sum(), torch.tensor(mine.numel(), device=mine.device)
    for work in [dist.all_reduce(each, async_op=True) for each in (total, count)]:
        work.wait()
    return (total / count).item()


# %% right: weighted means in float32
def mean_of_all(mine):
    count = torch.full((1,), float(len(mine)), device=mine.device)
    dist.all_reduce(count)
    part = mine.float().mean() * len(mine) / count
    dist.all_reduce(part)
    return part
