def pieces(rank, n):
    return [0, 2 * n - 1]
