def one_bit(gradient, owed):
    dist.all_reduce(gradient)
    gradient /= dist.get_world_size()
    return gradient > 0, gradient.abs().mean()
