def adjust(bias, wanted):
    dist.all_reduce(wanted)
    return bias - 0.3 * (wanted * len(wanted) / wanted.sum() - 1)
