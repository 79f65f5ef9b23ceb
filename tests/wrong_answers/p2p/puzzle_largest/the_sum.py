def largest(mine, rank, last):
    token = torch.zeros_like(mine)
    if rank > 0:
        dist.recv(token, rank - 1)
    token += mine
    if rank == last:
        return token
    dist.send(token, rank + 1)
