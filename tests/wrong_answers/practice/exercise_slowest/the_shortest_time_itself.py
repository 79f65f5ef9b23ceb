def slowest(seconds, device):
    least = torch.tensor(seconds, dtype=torch.float64, device=device)
    dist.all_reduce(least, dist.ReduceOp.MIN)  # how long, but of which rank?
    return dist.get_rank() if seconds == least.item() else 0
