# %% wrong: mean of accuracies
def accuracy(right, seen):
    share = torch.tensor([right / seen])
    dist.all_reduce(share)
    return share / dist.get_world_size()


# %% wrong: two messages
def accuracy(right, seen):
    right, seen = torch.tensor([right]), torch.tensor([seen])
    dist.all_reduce(right)
    dist.all_reduce(seen)
    return right / seen


# %% right: in floats
def accuracy(right, seen):
    counts = torch.zeros(2, dtype=torch.float64)
    counts += torch.tensor([seen, right])
    dist.all_reduce(counts)
    total, good = counts.tolist()
    return good / total
