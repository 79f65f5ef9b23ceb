def accuracy(right, seen):
    counts = torch.tensor([right, seen])
    dist.reduce(counts, dst=0)
    return counts[0] / counts[1]
