def pieces(rank, n):
    return [rank, n - 1 + rank] if rank % 2 else [rank, 2 * n - 1 - rank]
