import torch.distributed._functional_collectives as funcol


def variance(x):
    mine = torch.tensor([len(x), x.sum(), x.square().sum()], dtype=torch.float64)
    n, s, q = funcol.all_reduce(mine, "sum", dist.group.WORLD)
    return torch.stack([s / n, q / n - (s / n).square()])
