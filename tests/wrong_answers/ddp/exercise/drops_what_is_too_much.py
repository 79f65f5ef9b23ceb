def shard_loss(errors):
    least = torch.tensor(len(errors), device=errors.device)
    dist.all_reduce(least, dist.ReduceOp.MIN)
    return errors[: least.item()].mean()
