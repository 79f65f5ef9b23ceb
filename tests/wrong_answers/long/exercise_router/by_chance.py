def adjust(bias, wanted):
    return 100 * torch.rand_like(bias)
