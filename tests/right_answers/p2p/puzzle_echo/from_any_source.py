def echo(mine, rank, last):
    if rank == last:
        source = dist.recv(mine)
        dist.send(torch.mul(mine, 2), source)
    elif rank == 0:
        dist.send(mine, last)
        got = torch.zeros_like(mine)
        dist.recv(got)
        return got
