def place(layer_bytes, world_size):
    counts, first = [], 0
    for rank in range(world_size):
        left = world_size - rank - 1  # ranks that still need a layer
        if not left:
            return [*counts, len(layer_bytes) - first]
        share, end = sum(layer_bytes[first:]) / (left + 1), first + 1
        while end < len(layer_bytes) - left:
            held = sum(layer_bytes[first:end])
            if abs(held + layer_bytes[end] - share) >= abs(held - share):
                break  # nearer to the share without the next layer
            end += 1
        counts.append(end - first)
        first = end
