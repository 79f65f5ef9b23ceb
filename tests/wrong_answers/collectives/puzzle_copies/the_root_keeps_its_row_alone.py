def copies(row, rank, world_size):
    buf = torch.empty_like(row)
    empty = [torch.zeros_like(row)] * (world_size - 1)
    dist.scatter(buf, [row, *empty] if rank == 0 else None, src=0)
    return buf
