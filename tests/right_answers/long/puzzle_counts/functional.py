import torch.distributed._functional_collectives as functional


def coming(going):
    return functional.all_to_all_single(going, None, None, dist.group.WORLD)
