def all_reduce_by_hand(tensor, rank, world_size):
    copies = tensor.repeat(world_size)
    received = torch.empty_like(copies)
    dist.all_to_all_single(received, copies)
    return received.view(world_size, -1).sum(0)
