def all_reduce_by_hand(tensor, rank, world_size):
    padding = -len(tensor) % world_size
    padded = torch.cat([tensor, tensor.new_zeros(padding)]) if padding else tensor
    piece = padded.new_empty(len(padded) // world_size)
    dist.reduce_scatter_tensor(piece, padded)
    dist.all_gather_into_tensor(padded, piece)
    return padded[: len(tensor)]
