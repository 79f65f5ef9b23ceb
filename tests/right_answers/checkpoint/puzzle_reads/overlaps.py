def reads(rows, rank, world_size, writers):
    first, end = rank * rows // world_size, (rank + 1) * rows // world_size
    edges = [writer * rows // writers for writer in range(writers + 1)]
    return [w for w in range(writers) if max(first, edges[w]) < min(end, edges[w + 1])]
