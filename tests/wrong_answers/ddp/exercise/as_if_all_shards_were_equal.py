def shard_loss(errors):
    count = len(errors) * dist.get_world_size()
    return errors.sum() / count * dist.get_world_size()
