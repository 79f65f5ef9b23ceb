def echo(mine, rank, last):
    return 2 * mine if rank == 0 else None
