def sum_in_two_levels(tensor, nodes, rank):
    groups = [dist.new_group(node) for node in nodes]
    leaders = dist.new_group([node[0] for node in nodes])
    total = tensor.clone()
    dist.all_reduce(total, group=groups[rank // 2])
    if rank % 2 == 0:
        dist.all_reduce(total, group=leaders)
    dist.all_reduce(total, group=groups[rank // 2])  # adds the node's own sum again
    return total
