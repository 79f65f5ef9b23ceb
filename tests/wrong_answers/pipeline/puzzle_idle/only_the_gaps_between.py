def idle(mine):
    end = mine[:, 1].max()
    dist.all_reduce(end, dist.ReduceOp.MAX)
    return (mine[1:, 0] - mine[:-1, 1]).sum() / end
