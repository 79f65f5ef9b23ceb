def owner(mine, rank, world_size):
    pairs = torch.zeros(world_size)
    pairs[rank] = mine.item() + 1
    dist.all_reduce(pairs)
    return int(pairs.argmax())
