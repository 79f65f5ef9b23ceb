def pieces(rank, n):
    return [2 * rank, 2 * rank + 1]
