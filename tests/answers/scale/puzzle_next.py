# %% wrong: a tensor group further
def next_stage(rank, pipeline, data, tensor):
    return (rank + tensor) % (pipeline * data * tensor)


# %% wrong: as if pipeline ran fastest
def next_stage(rank, pipeline, data, tensor):
    stage = rank % pipeline
    return rank - stage + (stage + 1) % pipeline


# %% wrong: backwards
def next_stage(rank, pipeline, data, tensor):
    return (rank - data * tensor) % (pipeline * data * tensor)


# %% wrong: neighbor
def next_stage(rank, pipeline, data, tensor):
    return (rank + 1) % (pipeline * data * tensor)


# %% wrong: no way round
def next_stage(rank, pipeline, data, tensor):
    return rank + data * tensor


# %% wrong: the stages first rank
def next_stage(rank, pipeline, data, tensor):
    stage = rank // (data * tensor)
    return (stage + 1) % pipeline * data * tensor


# %% right: by coordinates
def next_stage(rank, pipeline, data, tensor):
    stage, place = divmod(rank, data * tensor)
    after = stage + 1 if stage + 1 < pipeline else 0
    return after * data * tensor + place


# %% right: from a tensor
def next_stage(rank, pipeline, data, tensor):
    mesh = torch.arange(pipeline * data * tensor).view(pipeline, -1)
    return mesh.roll(-1, dims=0).flatten()[rank]
