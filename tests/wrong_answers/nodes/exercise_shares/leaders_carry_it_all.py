"""The lesson's own way: the first rank of each node brings all, the others nothing."""


def sum_by_shares(tensor, inside, across):
    leader = dist.get_global_rank(inside, 0)
    dist.reduce(tensor, dst=leader, group=inside)
    if dist.get_rank(inside) == 0:
        dist.all_reduce(tensor, group=across)
    dist.broadcast(tensor, src=leader, group=inside)
    return True
