def copies(row, rank, world_size):
    buf = torch.empty_like(row[:1])
    dist.scatter(buf, list(row.split(1)) if rank == 0 else None, src=0)
    return buf
