def adjust(bias, wanted):
    total = wanted.clone()
    dist.all_reduce(total)
    mean = total.float().mean()
    return 0.3 * (1 - total / mean)
