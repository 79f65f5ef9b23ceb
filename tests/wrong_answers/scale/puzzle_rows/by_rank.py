def rows(rank, pipeline, data, tensor, batch):
    share = batch // (pipeline * data * tensor)
    return range(rank * share, (rank + 1) * share)
