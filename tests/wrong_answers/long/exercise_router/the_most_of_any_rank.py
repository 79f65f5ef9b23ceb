def adjust(bias, wanted):
    dist.all_reduce(wanted, dist.ReduceOp.MAX)
    return bias + 0.05 * torch.sign(wanted.float().mean() - wanted)
