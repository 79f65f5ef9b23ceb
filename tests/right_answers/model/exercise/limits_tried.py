def packed(layer_bytes, limit, world_size):
    counts, held = [0], 0
    for place, size in enumerate(layer_bytes):
        left = len(layer_bytes) - place
        full = held + size > limit or left <= world_size - len(counts)
        if counts[-1] and full:
            counts, held = [*counts, 0], 0
        counts[-1] += 1
        held += size
    return counts


def place(layer_bytes, world_size):
    sums = {sum(layer_bytes[a:b]) for a in range(8) for b in range(a + 1, 9)}
    for limit in sorted(sums):
        if limit < max(layer_bytes):
            continue
        counts = packed(layer_bytes, limit, world_size)
        if len(counts) == world_size:
            return counts
