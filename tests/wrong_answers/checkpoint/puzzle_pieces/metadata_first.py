def pieces(write, rank):
    if rank == 0:
        write(".metadata")
    dist.barrier()
    write("piece")
