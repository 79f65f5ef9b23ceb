def copies(row, rank, world_size):
    buf = torch.empty_like(row)
    dist.scatter(buf, [row] * world_size, src=0)
    return buf
