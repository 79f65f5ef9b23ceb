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


# %% wrong: padding counted
def mean_of_all(mine):
    longest = mine.new_tensor(len(mine))
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    padded = mine.new_full((int(longest),), torch.nan)
    padded[: len(mine)] = mine
    rows = [torch.empty_like(padded) for _ in range(dist.get_world_size())]
    dist.all_gather(rows, padded)
    return torch.cat(rows).mean()  # and not nanmean()
