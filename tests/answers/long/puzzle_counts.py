# %% wrong: gathered
def coming(going):
    everyone = [torch.empty_like(going) for _ in going]
    dist.all_gather(everyone, going)
    return torch.stack(everyone)[:, dist.get_rank()]


# %% wrong: what goes
def coming(going):
    return going


# %% right: into zeros
def coming(going):
    counts = going.new_zeros(len(going))
    dist.all_to_all_single(counts, going)
    return counts.tolist()
