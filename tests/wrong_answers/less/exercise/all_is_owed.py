def one_bit(gradient, owed):
    total = gradient + owed
    bits, scale = total > 0, total.abs().mean()
    owed.copy_(total)
    return bits, scale
