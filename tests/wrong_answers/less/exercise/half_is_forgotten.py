def one_bit(gradient, owed):
    total = gradient + owed / 2
    bits, scale = total > 0, total.abs().mean()
    owed.copy_(total - torch.where(bits, scale, -scale))
    return bits, scale
