def adjust(bias, wanted):
    bias = bias + 0.05 * torch.sign(wanted.float().mean() - wanted)
    dist.broadcast(bias, src=0)
    return bias
