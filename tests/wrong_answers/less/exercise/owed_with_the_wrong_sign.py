def one_bit(gradient, owed):
    total = gradient + owed
    bits, scale = total > 0, total.abs().mean()
    owed.copy_(torch.where(bits, scale, -scale) - total)
    return bits, scale
