def median(mine):
    ends = torch.tensor([-int(mine.min()), int(mine.max())] if len(mine) else [-TOP, 0])
    dist.all_reduce(ends, dist.ReduceOp.MAX)
    return int(ends[1] - ends[0]) // 2
