def pieces(write, rank):
    dist.barrier()
    write("piece")
    if rank == 0:
        write(".metadata")
