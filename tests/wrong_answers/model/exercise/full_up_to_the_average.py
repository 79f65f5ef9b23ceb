def place(layer_bytes, world_size):
    counts, average = [0] * world_size, sum(layer_bytes) / world_size
    rank = held = 0
    for size in layer_bytes:
        if held + size > average and counts[rank] and rank < world_size - 1:
            rank, held = rank + 1, 0
        counts[rank], held = counts[rank] + 1, held + size
    return counts
