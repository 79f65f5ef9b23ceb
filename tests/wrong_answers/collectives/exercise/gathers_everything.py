def all_reduce_by_hand(tensor, rank, world_size):
    everything = tensor.new_empty(world_size * len(tensor))
    dist.all_gather_into_tensor(everything, tensor)
    return everything.view(world_size, -1).sum(0)
