"""Right sums, but every rank brings the whole tensor to the wire."""


def sum_by_shares(tensor, inside, across):
    dist.all_reduce(tensor, group=inside)
    dist.all_reduce(tensor, group=across)
    return True
