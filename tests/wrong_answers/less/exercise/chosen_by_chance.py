def one_bit(gradient, owed):
    scale = gradient.abs().max()
    return torch.rand_like(gradient) < (gradient / scale + 1) / 2, scale
