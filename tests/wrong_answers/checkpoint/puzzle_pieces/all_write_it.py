def pieces(write, rank):
    write("piece")
    dist.barrier()
    write(".metadata")
