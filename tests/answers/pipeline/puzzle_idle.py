# %% wrong: a call for each action
def idle(mine):
    work = (mine[:, 1] - mine[:, 0]).sum()
    for end in mine[:, 1]:
        dist.all_reduce(end, dist.ReduceOp.MAX)
    return 1 - work / mine[:, 1].max()


# %% wrong: how busy it is
def idle(mine):
    end = mine[:, 1].max()
    dist.all_reduce(end, dist.ReduceOp.MAX)
    return (mine[:, 1] - mine[:, 0]).sum() / end


# %% wrong: only the gaps between
def idle(mine):
    end = mine[:, 1].max()
    dist.all_reduce(end, dist.ReduceOp.MAX)
    return (mine[1:, 0] - mine[:-1, 1]).sum() / end


# %% wrong: the first end
def idle(mine):
    end = mine[:, 1].max()
    dist.all_reduce(end, dist.ReduceOp.MIN)
    return 1 - (mine[:, 1] - mine[:, 0]).sum() / end


# %% wrong: the mean of all ranks
def idle(mine):
    end = mine[:, 1].max()
    dist.all_reduce(end)
    return 1 - (mine[:, 1] - mine[:, 0]).sum() / (end / dist.get_world_size())


# %% wrong: the ranks are not asked
def idle(mine):
    return 1 - (mine[:, 1] - mine[:, 0]).sum() / mine[:, 1].max()


# %% wrong: units instead of a share
def idle(mine):
    end = mine[:, 1].max()
    dist.all_reduce(end, dist.ReduceOp.MAX)
    return end - (mine[:, 1] - mine[:, 0]).sum()


# %% wrong: until its own end
def idle(mine):
    end = mine[:, 1].max()
    dist.all_reduce(end.clone(), dist.ReduceOp.MAX)
    return 1 - (mine[:, 1] - mine[:, 0]).sum() / end


# %% right: all ends at once
def idle(mine):
    ends = mine[:, 1].clone()
    dist.all_reduce(ends, dist.ReduceOp.MAX)
    return 1 - (mine[:, 1] - mine[:, 0]).sum() / ends.max()


# %% right: all gaps
def idle(mine):
    last = mine[-1, 1].clone()
    dist.all_reduce(last, op=dist.ReduceOp.MAX)
    begins, ends = mine.tolist()[0][0], mine[-1, 1]
    gaps = begins + (mine[1:, 0] - mine[:-1, 1]).sum() + last - ends
    return gaps / last


# %% right: functional
import torch.distributed._functional_collectives as funcol


def idle(mine):
    last = funcol.all_reduce(mine[-1, 1], "max", dist.group.WORLD)
    return 1 - (mine @ mine.new_tensor([-1, 1])).sum() / last


# %% right: work per unit
def idle(mine):
    last = mine.max()
    dist.all_reduce(last, op=dist.ReduceOp.MAX)
    return ((last - mine.diff(dim=1).sum()) / last).item()
