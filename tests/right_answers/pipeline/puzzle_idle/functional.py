import torch.distributed._functional_collectives as funcol


def idle(mine):
    last = funcol.all_reduce(mine[-1, 1], "max", dist.group.WORLD)
    return 1 - (mine @ mine.new_tensor([-1, 1])).sum() / last
