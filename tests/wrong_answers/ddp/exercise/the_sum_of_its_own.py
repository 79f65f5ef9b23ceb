def shard_loss(errors):
    return errors.sum()
