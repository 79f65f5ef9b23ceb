def sum_in_two_levels(tensor, nodes, rank):
    # All ranks make all groups, in the same order.
    groups = [dist.new_group(node) for node in nodes]
    leaders = dist.new_group([node[0] for node in nodes])
    node, group = nodes[rank // 2], groups[rank // 2]
    total = tensor.clone()
    dist.reduce(total, dst=node[0], group=group)  # the leader knows its node's sum
    if rank == node[0]:
        dist.all_reduce(total, group=leaders)  # all leaders know the whole sum
    dist.broadcast(total, src=node[0], group=group)  # and tell their nodes
    return total
