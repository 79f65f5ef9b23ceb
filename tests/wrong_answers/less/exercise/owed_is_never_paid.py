def one_bit(gradient, owed):
    bits, scale = gradient > 0, gradient.abs().mean()
    owed += gradient - torch.where(bits, scale, -scale)
    return bits, scale
