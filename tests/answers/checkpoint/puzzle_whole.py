# %% wrong: folder before rename
def whole(do, rank):
    if rank == 0:
        for what in ("write", "sync file", "sync folder", "rename"):
            do(what)
    dist.barrier()


# %% wrong: folder first
def whole(do, rank):
    if rank == 0:
        for what in ("sync folder", "write", "sync file", "rename"):
            do(what)
    dist.barrier()


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


# %% wrong: released too early
def whole(do, rank):
    if rank == 0:
        do("write")
        do("sync file")
    dist.barrier()
    if rank == 0:
        do("rename")
        do("sync folder")


# %% wrong: root does not wait
def whole(do, rank):
    if rank == 0:
        for what in ("write", "sync file", "rename", "sync folder"):
            do(what)
    else:
        dist.barrier()


# %% wrong: synced before written
def whole(do, rank):
    if rank == 0:
        for what in ("sync file", "write", "rename", "sync folder"):
            do(what)
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
