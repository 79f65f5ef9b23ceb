def one_bit(gradient, owed):
    total = gradient + owed
    bits, scale = total > 0, torch.ones((), device=total.device)
    owed.copy_(total - torch.where(bits, scale, -scale))
    return bits, scale
