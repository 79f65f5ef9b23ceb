def one_bit(gradient, owed):
    return gradient, gradient.abs().mean()
