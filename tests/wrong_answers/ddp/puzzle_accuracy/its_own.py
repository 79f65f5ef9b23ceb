def accuracy(right, seen):
    counts = torch.tensor([right, seen])
    dist.all_reduce(counts.clone())
    return counts[0] / counts[1]
