def mean_of_all(mine):
    last = dist.get_world_size() - 1
    pair = torch.tensor([float(mine.sum()), len(mine)], dtype=mine.dtype).to(
        mine.device
    )
    dist.reduce(pair, dst=last, op=dist.ReduceOp.SUM)
    mean = pair[:1] / pair[1:]
    dist.broadcast(mean, src=last)
    return mean
