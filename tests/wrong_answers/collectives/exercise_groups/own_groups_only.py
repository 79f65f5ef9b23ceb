def sum_in_two_levels(tensor, nodes, rank):
    node = nodes[rank // 2]
    group = dist.new_group(node)
    total = tensor.clone()
    dist.all_reduce(total, group=group)
    if rank == node[0]:
        leaders = dist.new_group([node[0] for node in nodes])
        dist.all_reduce(total, group=leaders)
    dist.broadcast(total, src=node[0], group=group)
    return total
