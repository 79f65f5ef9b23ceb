def owner(mine, rank, world_size):
    largest = mine.clone()
    dist.all_reduce(largest, op=dist.ReduceOp.MAX)
    found = torch.tensor([rank if mine == largest else 0])
    dist.all_reduce(found, op=dist.ReduceOp.MAX)
    return found
