def slowest(seconds, device):
    least = torch.tensor([seconds], device=device)
    dist.all_reduce(least, op=dist.ReduceOp.MIN)
    is_me = least.item() == torch.tensor(seconds).item()
    who = torch.tensor([dist.get_rank() if is_me else -1], device=device)
    dist.all_reduce(who, op=dist.ReduceOp.MAX)
    return int(who)
