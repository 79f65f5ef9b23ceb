def pieces(rank, n):
    return [rank, 2 * n - rank]
