def rows(rank, pipeline, data, tensor, batch):
    shares = torch.arange(batch).reshape(data, -1)
    coordinate = rank % (data * tensor) // tensor
    return shares[coordinate]
