def pieces(rank, n):
    return {n + rank, n - 1 - rank}
