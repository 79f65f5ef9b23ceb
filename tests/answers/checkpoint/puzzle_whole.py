# %% wrong: folder forgotten
def whole(do, rank):
    if rank == 0:
        for what in ("write", "sync file", "rename"):
            do(what)
    dist.barrier()


# %% wrong: name before bytes
def whole(do, rank):
    if rank == 0:
        for what in ("write", "rename", "sync file", "sync folder"):
            do(what)
    dist.barrier()


# %% wrong: root does not wait
def whole(do, rank):
    if rank == 0:
        for what in ("write", "sync file", "rename", "sync folder"):
            do(what)
    else:
        dist.barrier()


# %% right: others wait first
def whole(do, rank):
    if rank:
        return dist.barrier()
    do("write")
    do("sync file")
    do("rename")
    do("sync folder")
    return dist.barrier()
