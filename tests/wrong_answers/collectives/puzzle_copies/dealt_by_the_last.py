def copies(row, rank, world_size):
    buf, last = torch.empty_like(row), world_size - 1
    dist.scatter(buf, [row] * world_size if rank == last else None, src=last)
    return buf
