def accuracy(right, seen):
    right, seen = torch.tensor([right]), torch.tensor([seen])
    dist.all_reduce(right)
    dist.all_reduce(seen)
    return right / seen
