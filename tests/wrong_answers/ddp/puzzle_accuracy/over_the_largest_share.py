def accuracy(right, seen):
    counts = torch.tensor([right, seen])
    dist.all_reduce(counts, op=dist.ReduceOp.MAX)
    return counts[0] / counts[1]
