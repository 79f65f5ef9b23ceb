def late(mine):
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(every, mine)
    came, left = torch.stack(every).T
    return (left - came).argmax()
