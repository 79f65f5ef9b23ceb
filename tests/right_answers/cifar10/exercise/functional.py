import torch.distributed._functional_collectives as funcol


def batch_statistics(x):
    x = x.to(torch.float64)
    mine = torch.cat([x.sum(0), x.pow(2).sum(0), x.new_tensor([len(x)])])
    everyone = funcol.all_reduce(mine, reduceOp="sum", group=dist.group.WORLD)
    first, second = (everyone[:-1] / everyone[-1]).chunk(2)
    return [first, second - first.square()]
