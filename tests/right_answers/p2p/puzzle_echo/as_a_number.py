def echo(mine, rank, last):
    if rank == 0:
        dist.isend(mine.clone(), last).wait()
        dist.irecv(mine, last).wait()
        return mine.item()
    if rank == last:
        dist.recv(mine, src=0)
        dist.send(mine.mul_(2), dst=0)
