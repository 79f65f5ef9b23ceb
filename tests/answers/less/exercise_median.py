# %% wrong: gathered
def median(mine):
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine.tolist())
    return torch.tensor(sum(everyone, [])).median()


# %% wrong: histogram
def median(mine):
    counts = torch.bincount(mine, minlength=TOP)
    dist.all_reduce(counts)
    return int((2 * counts.cumsum(0) < counts.sum()).sum())


# %% wrong: mean
def median(mine):
    total = torch.tensor([int(mine.sum()), len(mine)], device=mine.device)
    dist.all_reduce(total)
    return total[0] // total[1]


# %% wrong: median of medians
def median(mine):
    own = mine.median().item() if len(mine) else 0
    total = torch.tensor([own, len(mine) > 0], device=mine.device)
    dist.all_reduce(total)
    return total[0] // total[1]


# %% wrong: two numbers in each call
def median(mine):
    low, high = 0, TOP - 1
    while low < high:
        middle = (low + high) // 2
        sums = torch.stack([(mine <= middle).sum(), (mine >= 0).sum()])
        dist.all_reduce(sums)
        low, high = (low, middle) if 2 * sums[0] >= sums[1] else (middle + 1, high)
    return low


# %% right: two levels of bins
def median(mine):
    """Two calls: the upper five bits, then the lower ones; six counts in a number."""
    places = 10 * torch.arange(6, device=mine.device)

    def bins(digits):  # 32 counts below 1024
        counts = torch.bincount(digits, minlength=36).view(6, 6)
        packed = (counts << places).sum(1)
        dist.all_reduce(packed)
        return (packed[:, None] >> places & 1023).flatten()[:32]

    coarse = bins(mine >> 5)
    wanted = (coarse.sum() + 1) // 2
    first = int((coarse.cumsum(0) < wanted).sum())
    wanted -= coarse[:first].sum()
    fine = bins(mine[mine >> 5 == first] & 31)
    return 32 * first + int((fine.cumsum(0) < wanted).sum())
