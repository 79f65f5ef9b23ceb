def slowest(seconds, device):
    late = torch.tensor(0.0, device=device)
    if seconds < 0.021:
        late += dist.get_rank()
    dist.all_reduce(late, dist.ReduceOp.MIN)
    return int(late)
