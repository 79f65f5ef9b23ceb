def adjust(bias, wanted):
    return torch.zeros_like(bias)
