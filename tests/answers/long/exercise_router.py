# %% wrong: by chance
def adjust(bias, wanted):
    return 100 * torch.rand_like(bias)


# %% wrong: each rank for itself
def adjust(bias, wanted):
    return bias + 0.05 * torch.sign(wanted.float().mean() - wanted)


# %% wrong: from zero in each step
def adjust(bias, wanted):
    total = wanted.clone()
    dist.all_reduce(total)
    mean = total.float().mean()
    return 0.3 * (1 - total / mean)


# %% wrong: no bias at all
def adjust(bias, wanted):
    return torch.zeros_like(bias)


# %% wrong: one expert after another
def adjust(bias, wanted):
    mean = wanted.float().mean()
    return (bias - 0.3 * (wanted / mean - 1)).clamp(-1, 1)


# %% wrong: rank 0 decides
def adjust(bias, wanted):
    bias = bias + 0.05 * torch.sign(wanted.float().mean() - wanted)
    dist.broadcast(bias, src=0)
    return bias


# %% wrong: the fullest alone
def adjust(bias, wanted):
    dist.all_reduce(wanted)
    bias[wanted.argmax()] -= 0.01
    return bias


# %% wrong: the most of any rank
def adjust(bias, wanted):
    dist.all_reduce(wanted, dist.ReduceOp.MAX)
    return bias + 0.05 * torch.sign(wanted.float().mean() - wanted)


# %% wrong: the wrong way
def adjust(bias, wanted):
    total = wanted.clone()
    dist.all_reduce(total)
    mean = total.float().mean()
    return bias + 0.05 * torch.sign(total - mean)


# %% wrong: too large a step
def adjust(bias, wanted):
    total = wanted.clone()
    dist.all_reduce(total)
    mean = total.float().mean()
    return bias + torch.sign(mean - total)


# %% wrong: too small a step
def adjust(bias, wanted):
    total = wanted.clone()
    dist.all_reduce(total)
    mean = total.float().mean()
    return bias + 0.001 * torch.sign(mean - total)


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
