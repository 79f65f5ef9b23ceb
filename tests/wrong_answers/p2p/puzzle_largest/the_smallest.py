def largest(mine, rank, last):
    token = mine.clone()
    if rank > 0:
        dist.recv(token, rank - 1)
        token = torch.minimum(token, mine)
    if rank == last:
        return token
    dist.send(token, rank + 1)
