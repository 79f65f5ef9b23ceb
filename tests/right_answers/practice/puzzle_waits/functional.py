import torch.distributed._functional_collectives as funcol


def waits(arrives):
    return (funcol.all_reduce(arrives, "max", dist.group.WORLD) - arrives).item()
