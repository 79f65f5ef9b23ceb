# %% wrong: by rank
def samples(rank, pipeline, data, tensor, batch):
    share = batch // (pipeline * data * tensor)
    return range(rank * share, (rank + 1) * share)


# %% wrong: stages have their own
def samples(rank, pipeline, data, tensor, batch):
    share, place = batch // data, rank // tensor
    return range(place * share, (place + 1) * share)


# %% right: by chunks
def samples(rank, pipeline, data, tensor, batch):
    shares = torch.arange(batch).reshape(data, -1)
    coordinate = rank % (data * tensor) // tensor
    return shares[coordinate]
