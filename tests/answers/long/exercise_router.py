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
