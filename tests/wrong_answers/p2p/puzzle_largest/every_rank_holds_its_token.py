def largest(mine, rank, last):
    token = mine.clone()
    if rank > 0:
        dist.recv(token, rank - 1)
        token = torch.maximum(token, mine)
    if rank < last:
        dist.send(token, rank + 1)
    return token
