def adjust(bias, wanted):
    total = wanted.clone()
    dist.all_reduce(total)
    mean = total.float().mean()
    return bias + torch.sign(mean - total)
