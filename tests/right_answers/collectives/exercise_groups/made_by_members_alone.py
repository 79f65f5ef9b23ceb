def sum_in_two_levels(tensor, nodes, rank):
    mine = [node for node in nodes if rank in node][0]
    group = dist.new_group(mine, use_local_synchronization=True)
    total = tensor.clone()
    dist.all_reduce(total, group=group)
    if rank == mine[0]:
        heads = [node[0] for node in nodes]
        dist.all_reduce(
            total, group=dist.new_group(heads, use_local_synchronization=True)
        )
    dist.broadcast(total, mine[0], group)
    return total
