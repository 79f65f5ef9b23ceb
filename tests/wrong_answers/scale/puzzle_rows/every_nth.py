def rows(rank, pipeline, data, tensor, batch):
    return range(rank // tensor % data, batch, data)
