def rest(order, rank, world_size, done, size):
    return torch.tensor(order).view(-1, world_size)[done * size :, rank]
