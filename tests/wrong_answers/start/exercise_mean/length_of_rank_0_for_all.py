def mean_of_all(mine):
    total, length = mine.sum(), torch.tensor(len(mine), device=mine.device)
    dist.all_reduce(total)
    dist.broadcast(length, src=0)
    return total / (length * dist.get_world_size())
