def shard_loss(errors):
    count = torch.tensor(float(len(errors)), device=errors.device)
    largest = count.clone()
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return errors.mean() * count / largest
