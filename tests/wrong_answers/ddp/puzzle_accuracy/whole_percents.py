def accuracy(right, seen):
    counts = torch.tensor([right, seen])
    dist.all_reduce(counts)
    return 100 * counts[0] // counts[1] / 100
