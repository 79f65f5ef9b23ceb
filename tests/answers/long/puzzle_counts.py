# %% wrong: all to everybody
def coming(going):
    n = len(going)
    every = torch.empty(n * n, dtype=going.dtype)
    dist.all_to_all_single(every, going.repeat(n))
    return every.view(n, n)[:, dist.get_rank()]


# %% wrong: by messages
def coming(going):
    rank, n = dist.get_rank(), dist.get_world_size()
    come = going.clone()
    sends = [dist.isend(going[r : r + 1].clone(), r) for r in range(n) if r != rank]
    for r in range(n):
        if r != rank:
            dist.recv(come[r : r + 1], r)
    for work in sends:
        work.wait()
    return come


# %% wrong: gathered
def coming(going):
    everyone = [torch.empty_like(going) for _ in going]
    dist.all_gather(everyone, going)
    return torch.stack(everyone)[:, dist.get_rank()]


# %% wrong: one number
def coming(going):
    come = torch.empty_like(going)
    dist.all_to_all_single(come, going)
    return come.sum()


# %% wrong: sent twice
def coming(going):
    counts = torch.empty_like(going)
    dist.all_to_all_single(counts, going)
    dist.all_to_all_single(going, counts)
    return going


# %% wrong: summed
def coming(going):
    dist.all_reduce(going)
    return going


# %% wrong: the others rows
def coming(going):
    counts = going.flip(0).contiguous()
    dist.all_to_all_single(counts, going)
    return counts.flip(0)


# %% wrong: transposed alone
def coming(going):
    come = torch.empty_like(going)
    dist.all_to_all_single(come, going.flip(0))
    return come


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
