def adjust(bias, wanted):
    dist.all_reduce(total := wanted.float())
    off = (total / total.mean() - 1).clamp(-1, 1)
    bias -= 0.15 * off
    return bias - bias.mean()
