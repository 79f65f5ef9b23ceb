def adjust(bias, wanted):
    total = wanted.clone()
    dist.all_reduce(total)
    mean = total.float().mean()
    return bias + 0.05 * torch.sign(total - mean)
