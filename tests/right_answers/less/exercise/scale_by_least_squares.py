def one_bit(gradient, owed):
    torch.add(gradient, owed, out=owed)
    signs = owed.sign()
    scale = (owed @ signs) / signs.square().sum().clamp(min=1)
    bits = signs > 0
    owed.sub_(torch.where(bits, 1.0, -1.0).mul(scale))
    return bits, scale.reshape(1)
