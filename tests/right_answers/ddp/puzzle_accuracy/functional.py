import torch.distributed._functional_collectives as funcol


def accuracy(right, seen):
    mine = torch.tensor([right, seen], dtype=torch.float64)
    counts = funcol.all_reduce(mine, "sum", dist.group.WORLD)
    return counts[:1] / counts[1:]
