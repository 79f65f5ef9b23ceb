# %% wrong: a byte for each number
CHANGES = {
    "return bits, scale": "return bits.to(torch.uint8), scale",
}


# %% wrong: a scale for each number
def one_bit(gradient, owed):
    total = gradient + owed
    return total > 0, total.abs()


# %% wrong: all numbers are sent
def one_bit(gradient, owed):
    return gradient, gradient.abs().mean()


# %% wrong: nothing is owed
def one_bit(gradient, owed):
    bits, scale = gradient > 0, gradient.abs().mean()
    return bits, scale


# %% wrong: owed is never paid
def one_bit(gradient, owed):
    bits, scale = gradient > 0, gradient.abs().mean()
    owed += gradient - torch.where(bits, scale, -scale)
    return bits, scale


# %% wrong: the mean is fetched first
def one_bit(gradient, owed):
    dist.all_reduce(gradient)
    gradient /= dist.get_world_size()
    return gradient > 0, gradient.abs().mean()


# %% right: owed in place
def one_bit(gradient, owed):
    owed += gradient
    scale = owed.norm(1).item() / owed.numel()
    bits = owed >= 0
    owed -= scale * (2.0 * bits - 1)
    return bits, scale
