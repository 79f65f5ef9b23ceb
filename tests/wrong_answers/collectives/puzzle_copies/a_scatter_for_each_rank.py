def copies(row, rank, world_size):
    for _ in range(world_size):
        buf = torch.empty_like(row)
        dist.scatter(buf, [row] * world_size if rank == 0 else None, src=0)
    return buf
