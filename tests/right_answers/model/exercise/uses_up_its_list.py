def cut(layer_bytes, limit):
    counts = [0]
    room = limit
    while layer_bytes:
        if layer_bytes[0] > room:
            counts.append(0)
            room = limit
        counts[-1] += 1
        room -= layer_bytes.pop(0)
    return counts


def place(layer_bytes, world_size):
    limit = max(layer_bytes)
    while len(counts := cut(layer_bytes.copy(), limit)) > world_size:
        limit += 1
    layer_bytes.clear()
    while len(counts) < world_size:
        at = max(range(len(counts)), key=counts.__getitem__)
        counts[at : at + 1] = [counts[at] - 1, 1]
    return counts
