def one_bit(gradient, owed):
    owed += gradient
    scale = owed.norm(1).item() / owed.numel()
    bits = owed >= 0
    owed -= scale * (2.0 * bits - 1)
    return bits, scale
