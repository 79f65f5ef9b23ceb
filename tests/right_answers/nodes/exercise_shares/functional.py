import torch.distributed._functional_collectives as funcol


def sum_by_shares(tensor, inside, across):
    piece = funcol.reduce_scatter_tensor(tensor, "sum", scatter_dim=0, group=inside)
    piece = funcol.all_reduce(piece, "sum", across)
    tensor.copy_(funcol.all_gather_tensor(piece, gather_dim=0, group=inside))
    return True
