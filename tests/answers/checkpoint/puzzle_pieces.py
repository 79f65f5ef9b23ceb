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


# %% right: async barrier
def pieces(write, rank):
    write("piece")
    dist.barrier(async_op=True).wait()
    for name in [".metadata"][rank:]:
        write(name)
