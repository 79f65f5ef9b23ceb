def sum_in_two_levels(tensor, nodes, rank):
    groups = {tuple(node): dist.new_group(ranks=node) for node in nodes}
    leaders = dist.new_group(ranks=[leader for leader, *_ in nodes])
    node = next(node for node in nodes if rank in node)
    dist.reduce(tensor, group_dst=0, group=groups[tuple(node)])
    if node.index(rank) == 0:
        dist.all_reduce(tensor, op=dist.ReduceOp.SUM, group=leaders)
    dist.broadcast(tensor, group_src=0, group=groups[tuple(node)])
    return tensor
