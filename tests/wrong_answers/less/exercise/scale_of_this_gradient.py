def one_bit(gradient, owed):
    total = gradient + owed
    bits, scale = total > 0, gradient.abs().mean()
    owed.copy_((total - torch.where(bits, scale, -scale)).clamp(-1, 1))
    return bits, scale
