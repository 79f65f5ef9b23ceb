# %% wrong: all of them
def rows(rank, pipeline, data, tensor, batch):
    return range(batch)


# %% wrong: as if data ran fastest
def rows(rank, pipeline, data, tensor, batch):
    share, place = batch // data, rank % data
    return range(place * share, (place + 1) * share)


# %% wrong: by rank
def rows(rank, pipeline, data, tensor, batch):
    share = batch // (pipeline * data * tensor)
    return range(rank * share, (rank + 1) * share)


# %% wrong: every nth
def rows(rank, pipeline, data, tensor, batch):
    return range(rank // tensor % data, batch, data)


# %% wrong: stages have their own
def rows(rank, pipeline, data, tensor, batch):
    share, place = batch // data, rank // tensor
    return range(place * share, (place + 1) * share)


# %% right: by chunks
def rows(rank, pipeline, data, tensor, batch):
    shares = torch.arange(batch).reshape(data, -1)
    coordinate = rank % (data * tensor) // tensor
    return shares[coordinate]
