# %% wrong: gathered
def coming(going):
    everyone = [torch.empty_like(going) for _ in going]
    dist.all_gather(everyone, going)
    return torch.stack(everyone)[:, dist.get_rank()]


# %% wrong: what goes
def coming(going):
    return going


# %% right: functional
import torch.distributed._functional_collectives as functional


def coming(going):
    return functional.all_to_all_single(going, None, None, dist.group.WORLD)


# %% right: into zeros
def coming(going):
    counts = going.new_zeros(len(going))
    dist.all_to_all_single(counts, going)
    return counts.tolist()


# %% right: with lists
def coming(going):
    parts = list(going.clone().split(1))
    come = [torch.empty_like(part) for part in parts]
    dist.all_to_all(come, parts)
    return torch.cat(come)
