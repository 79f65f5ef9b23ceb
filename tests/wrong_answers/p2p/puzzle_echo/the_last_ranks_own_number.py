def echo(mine, rank, last):
    if rank == 0:
        dist.send(mine, last)
        dist.recv(mine, last)
        return mine
    if rank == last:
        dist.recv(torch.empty_like(mine), 0)
        dist.send(2 * mine, 0)
