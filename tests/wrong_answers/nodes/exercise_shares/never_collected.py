"""Each rank has the sum of its own piece, and nobody puts the pieces together."""


def sum_by_shares(tensor, inside, across):
    piece = tensor.new_empty(len(tensor) // dist.get_world_size(inside))
    dist.reduce_scatter_tensor(piece, tensor, group=inside)
    dist.all_reduce(piece, group=across)
    tensor[: len(piece)] = piece
    return True
