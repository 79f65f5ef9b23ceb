def whole(do, rank):
    if rank == 0:
        do("write")
        do("sync file")
    dist.barrier()
    if rank == 0:
        do("rename")
        do("sync folder")
