def shard_loss(errors):
    count = torch.full((), float(errors.shape[0]), device=errors.device)
    dist.all_reduce(count, op=dist.ReduceOp.AVG)
    return (errors / count).sum()
