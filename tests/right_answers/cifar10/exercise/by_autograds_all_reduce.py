import torch.distributed.nn.functional as dist_nn


def batch_statistics(x):
    x = x.double()
    powers = [torch.einsum("nc->c", x**power) for power in range(3)]
    count, total, squares = dist_nn.all_reduce(torch.stack(powers)).unbind()
    return total / count, (squares - total * total / count) / count
