# %% wrong: only the gaps between
def idle(mine):
    end = mine[:, 1].max()
    dist.all_reduce(end, dist.ReduceOp.MAX)
    return (mine[1:, 0] - mine[:-1, 1]).sum() / end


# %% wrong: until its own end
def idle(mine):
    end = mine[:, 1].max()
    dist.all_reduce(end.clone(), dist.ReduceOp.MAX)
    return 1 - (mine[:, 1] - mine[:, 0]).sum() / end


# %% right: all gaps
def idle(mine):
    last = mine[-1, 1].clone()
    dist.all_reduce(last, op=dist.ReduceOp.MAX)
    begins, ends = mine.tolist()[0][0], mine[-1, 1]
    gaps = begins + (mine[1:, 0] - mine[:-1, 1]).sum() + last - ends
    return gaps / last
