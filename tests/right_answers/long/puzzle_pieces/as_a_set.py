def pieces(rank, n):
    return {2 * n - 1 - rank, rank}
