def collect(mine, rank, world_size):
    lists = [None] * world_size if rank == 0 else None
    dist.gather_object(mine.tolist(), lists)
    return torch.tensor(sum(lists, [])) if rank == 0 else None
