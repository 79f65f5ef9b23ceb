import torch.distributed._functional_collectives as funcol


def columns(row):
    ones = [1] * len(row)
    return funcol.all_to_all_single(row, ones, ones, dist.group.WORLD).sum()
