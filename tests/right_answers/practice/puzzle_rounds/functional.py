import torch.distributed._functional_collectives as funcol


def rounds(batches):
    return funcol.all_reduce(torch.tensor(batches), "min", dist.group.WORLD).item()
