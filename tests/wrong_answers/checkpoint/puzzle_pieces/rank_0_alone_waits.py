def pieces(write, rank):
    write("piece")
    if rank == 0:
        dist.barrier()
        write(".metadata")
