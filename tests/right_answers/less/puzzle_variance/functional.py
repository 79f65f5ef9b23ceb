import torch.distributed._functional_collectives as funcol


def variance(mine):
    powers = mine.new_tensor([[0], [1], [2]])
    sums = funcol.all_reduce((mine**powers).sum(1), "sum", dist.group.WORLD)
    _, mean, square = (sums / sums[0]).tolist()
    return square - mean**2
