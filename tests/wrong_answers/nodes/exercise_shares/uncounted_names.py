"""The same detour by calls whose names are not those of `dist`."""


def sum_by_shares(tensor, inside, across):
    for group in (inside, across):
        group.allreduce([tensor]).wait()
    return True
