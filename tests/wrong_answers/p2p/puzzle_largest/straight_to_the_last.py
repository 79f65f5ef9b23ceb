def largest(mine, rank, last):
    if rank < last:
        return dist.send(mine, last)
    numbers = [mine]
    for other in range(last):
        dist.recv(theirs := torch.empty_like(mine), other)
        numbers.append(theirs)
    return torch.stack(numbers).max(dim=0).values
