import torch.distributed._functional_collectives as funcol


def shard_loss(errors):
    mine = torch.ones_like(errors).sum().detach()
    every = funcol.all_reduce(mine, "sum", dist.group.WORLD)
    return errors.mean() * (mine * dist.get_world_size() / every)
