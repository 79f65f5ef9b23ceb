import torch.distributed._functional_collectives as funcol


def step(weight, grad, rate, world_size):
    total = funcol.all_reduce(grad, "sum", dist.group.WORLD)
    return weight.add(total, alpha=-rate / world_size)
