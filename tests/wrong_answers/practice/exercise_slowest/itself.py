def slowest(seconds, device):
    return dist.get_rank()
