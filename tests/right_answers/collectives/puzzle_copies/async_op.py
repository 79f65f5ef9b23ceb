def copies(row, rank, world_size):
    out = torch.empty_like(row)
    given = [row] * world_size if rank == 0 else None
    dist.scatter(out, scatter_list=given, src=0, async_op=True).wait()
    return out
