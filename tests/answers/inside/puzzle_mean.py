# %% wrong: over all ranks
import torch
import torch.distributed as dist


def mean(grad):
    total = torch.zeros(1) if grad is None else grad.clone()
    dist.all_reduce(total)
    return total / dist.get_world_size()


# %% wrong: those without stay away
import torch
import torch.distributed as dist


def mean(grad):
    if grad is None:
        return torch.zeros(1)
    pair = torch.stack([grad[0], torch.ones(())])
    dist.all_reduce(pair)
    return pair[0] / pair[1]


# %% wrong: zero for those without
def mean(grad):
    pair = torch.zeros(2) if grad is None else torch.stack([grad[0], torch.ones(())])
    dist.all_reduce(pair)
    return pair[0] / pair[1] if grad is not None else 0.0


# %% right: by a mask
def mean(grad):
    has = float(grad is not None)
    pair = torch.tensor([float(grad) if has else 0.0, has], dtype=torch.float64)
    dist.all_reduce(tensor=pair)
    return torch.div(*pair)
