def all_reduce_by_hand(tensor, rank, world_size):
    padding = -len(tensor) % world_size
    padded = torch.cat([tensor, tensor.new_zeros(padding)])  # (pieces * world_size,)
    piece = padded.new_empty(len(padded) // world_size)
    # Rank i ends up with piece i of the sum.
    dist.reduce_scatter_tensor(piece, padded, op=dist.ReduceOp.SUM)
    # Every rank ends up with all the pieces, in rank order.
    dist.all_gather_into_tensor(padded, piece)
    return padded
