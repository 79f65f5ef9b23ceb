# %% wrong: in blocks
def mine(rows, rank, world_size):
    share = -(-rows // world_size)
    return list(range(rows))[rank * share : (rank + 1) * share]


# %% wrong: with the padding
def mine(rows, rank, world_size):
    return list(DistributedSampler(range(rows), world_size, rank, shuffle=False))


# %% right: by the sampler
def mine(rows, rank, world_size):
    sampler = DistributedSampler(range(rows), world_size, rank, shuffle=False)
    real = [turn * world_size + rank < rows for turn in range(len(sampler))]
    return [row for row, is_real in zip(sampler, real, strict=True) if is_real]
