def rows(rank, pipeline, data, tensor, batch):
    share, place = batch // data, rank % data
    return range(place * share, (place + 1) * share)
