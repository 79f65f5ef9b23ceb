"""Pieces are summed inside the node and collected, and no other node hears of it."""


def sum_by_shares(tensor, inside, across):
    piece = tensor.new_empty(len(tensor) // dist.get_world_size(inside))
    dist.reduce_scatter_tensor(piece, tensor, group=inside)
    dist.all_gather_into_tensor(tensor, piece, group=inside)
    return True
