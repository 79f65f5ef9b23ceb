import torch.distributed._functional_collectives as funcol


def late(mine):
    every = funcol.all_gather_tensor(mine[:1], 0, dist.group.WORLD)
    return every.argmax()
