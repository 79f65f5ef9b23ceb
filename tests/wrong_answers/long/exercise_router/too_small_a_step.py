def adjust(bias, wanted):
    total = wanted.clone()
    dist.all_reduce(total)
    mean = total.float().mean()
    return bias + 0.001 * torch.sign(mean - total)
