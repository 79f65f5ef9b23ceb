def sum_in_two_levels(tensor, nodes, rank, gather=dist.all_gather_object):
    lists = [None] * dist.get_world_size()
    gather(lists, tensor.tolist())
    return torch.tensor(lists).sum(0)
