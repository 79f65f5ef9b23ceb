def one_bit(gradient, owed):
    bits, scale = gradient > 0, gradient.abs().mean()
    return bits, scale
