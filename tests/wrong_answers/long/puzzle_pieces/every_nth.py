def pieces(rank, n):
    return [rank, rank + n]
