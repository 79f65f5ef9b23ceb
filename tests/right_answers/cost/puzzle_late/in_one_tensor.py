def late(mine):
    every = mine.new_empty(2 * dist.get_world_size())
    dist.all_gather_into_tensor(every, mine)
    came = every[::2].tolist()
    return came.index(max(came))
