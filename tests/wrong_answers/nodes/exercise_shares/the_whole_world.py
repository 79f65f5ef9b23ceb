"""One call for all ranks, as before."""


def sum_by_shares(tensor, inside, across):
    dist.all_reduce(tensor)
    return True
