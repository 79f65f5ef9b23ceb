def pieces(write, rank):
    if rank == 0:
        write("piece")
    dist.barrier()
    if rank == 0:
        write(".metadata")
