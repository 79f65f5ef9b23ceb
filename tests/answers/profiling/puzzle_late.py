# %% wrong: only the time is reduced
def late(mine):
    last = mine[0].clone()
    dist.all_reduce(last, dist.ReduceOp.MAX)
    return dist.get_rank() if mine[0] == last else None


# %% wrong: the longest in backward
def late(mine):
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    came, left = torch.stack(every).T
    return (left - came).argmax()


# %% right: in one tensor
def late(mine):
    every = mine.new_empty(2 * dist.get_world_size())
    dist.all_gather_into_tensor(every, mine)
    came = every[::2].tolist()
    return came.index(max(came))
