# %% wrong: each rank for itself
def adjust(bias, wanted):
    return bias + 0.05 * torch.sign(wanted.float().mean() - wanted)


# %% wrong: no bias at all
def adjust(bias, wanted):
    return torch.zeros_like(bias)


# %% right: by logarithm
def adjust(bias, wanted):
    counts = [torch.empty_like(wanted) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, wanted)
    total = torch.stack(counts).sum(0).clamp(min=1).double()
    return (bias - 0.4 * (total / total.mean()).log()).float()


# %% right: by share
def adjust(bias, wanted):
    dist.all_reduce(wanted)
    return bias - 0.3 * (wanted * len(wanted) / wanted.sum() - 1)


# %% right: in place and clamped
def adjust(bias, wanted):
    dist.all_reduce(total := wanted.float())
    off = (total / total.mean() - 1).clamp(-1, 1)
    bias -= 0.15 * off
    return bias - bias.mean()
