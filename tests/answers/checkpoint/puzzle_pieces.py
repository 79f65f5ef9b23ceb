# %% wrong: all write it
def pieces(write, rank):
    write("piece")
    dist.barrier()
    write(".metadata")


# %% wrong: barrier first
def pieces(write, rank):
    dist.barrier()
    write("piece")
    if rank == 0:
        write(".metadata")


# %% wrong: by the last rank
def pieces(write, rank):
    write("piece")
    dist.barrier()
    if rank == dist.get_world_size() - 1:
        write(".metadata")


# %% wrong: metadata first
def pieces(write, rank):
    if rank == 0:
        write(".metadata")
    dist.barrier()
    write("piece")


# %% wrong: no barrier
def pieces(write, rank):
    write("piece")
    if rank == 0:
        write(".metadata")


# %% wrong: rank 0 alone waits
def pieces(write, rank):
    write("piece")
    if rank == 0:
        dist.barrier()
        write(".metadata")


# %% wrong: rank 0 writes all
def pieces(write, rank):
    if rank == 0:
        write("piece")
    dist.barrier()
    if rank == 0:
        write(".metadata")


# %% right: async barrier
def pieces(write, rank):
    write("piece")
    dist.barrier(async_op=True).wait()
    for name in [".metadata"][rank:]:
        write(name)


# %% right: two branches
def pieces(write, rank):
    write("piece")
    if rank:
        return dist.barrier()
    dist.barrier()
    return write(".metadata")
