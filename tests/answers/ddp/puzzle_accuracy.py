# %% wrong: its own
def accuracy(right, seen):
    counts = torch.tensor([right, seen])
    dist.all_reduce(counts.clone())
    return counts[0] / counts[1]


# %% wrong: known to rank 0
def accuracy(right, seen):
    counts = torch.tensor([right, seen])
    dist.reduce(counts, dst=0)
    return counts[0] / counts[1]


# %% wrong: mean of accuracies
def accuracy(right, seen):
    share = torch.tensor([right / seen])
    dist.all_reduce(share)
    return share / dist.get_world_size()


# %% wrong: over the largest share
def accuracy(right, seen):
    counts = torch.tensor([right, seen])
    dist.all_reduce(counts, op=dist.ReduceOp.MAX)
    return counts[0] / counts[1]


# %% wrong: smoothed
def accuracy(right, seen):
    counts = torch.tensor([right, seen - right])
    dist.all_reduce(counts)
    return (counts[0] + 0.01) / (counts.sum() + 0.02)


# %% wrong: two messages
def accuracy(right, seen):
    right, seen = torch.tensor([right]), torch.tensor([seen])
    dist.all_reduce(right)
    dist.all_reduce(seen)
    return right / seen


# %% wrong: whole percents
def accuracy(right, seen):
    counts = torch.tensor([right, seen])
    dist.all_reduce(counts)
    return 100 * counts[0] // counts[1] / 100


# %% right: functional
import torch.distributed._functional_collectives as funcol


def accuracy(right, seen):
    mine = torch.tensor([right, seen], dtype=torch.float64)
    counts = funcol.all_reduce(mine, "sum", dist.group.WORLD)
    return counts[:1] / counts[1:]


# %% right: in floats
def accuracy(right, seen):
    counts = torch.zeros(2, dtype=torch.float64)
    counts += torch.tensor([seen, right])
    dist.all_reduce(counts)
    total, good = counts.tolist()
    return good / total
