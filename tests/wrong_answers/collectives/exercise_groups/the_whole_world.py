def sum_in_two_levels(tensor, nodes, rank):
    dist.all_reduce(tensor)
    return tensor
