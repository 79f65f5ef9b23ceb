def pieces(write, rank):
    write("piece")
    if rank == 0:
        write(".metadata")
