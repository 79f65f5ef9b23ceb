def shard_loss(errors):
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, errors.detach().flatten().tolist())
    everyone[dist.get_rank()] = []
    others = errors.new_tensor(sum(everyone, []))
    return torch.cat([errors.flatten(), others]).mean()
