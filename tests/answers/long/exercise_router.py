# %% wrong: each rank for itself
def adjust(bias, wanted):
    return bias + 0.05 * torch.sign(wanted.float().mean() - wanted)


# %% wrong: no bias at all
def adjust(bias, wanted):
    return torch.zeros_like(bias)


# %% wrong: rank 0's counts for all
def adjust(bias, wanted):
    dist.broadcast(counts := wanted.clone(), src=0)
    return bias + 0.05 * torch.sign(counts.float().mean() - counts)


# %% wrong: the mean of what each rank wants
def adjust(bias, wanted):
    step = torch.sign(wanted.float().mean() - wanted)
    dist.all_reduce(step)
    return bias + 0.05 * step / dist.get_world_size()


# %% right: by logarithm
def adjust(bias, wanted):
    counts = [torch.empty_like(wanted) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, wanted)
    total = torch.stack(counts).sum(0).clamp(min=1).double()
    return (bias - 0.4 * (total / total.mean()).log()).float()
