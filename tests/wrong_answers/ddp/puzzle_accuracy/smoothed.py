def accuracy(right, seen):
    counts = torch.tensor([right, seen - right])
    dist.all_reduce(counts)
    return (counts[0] + 0.01) / (counts.sum() + 0.02)
