def place(layer_bytes, world_size):
    best = {"peak": float("inf"), "counts": None}

    def walk(first, counts, peak):
        if peak >= best["peak"]:
            return
        if len(counts) == world_size:
            if first == len(layer_bytes):
                best.update(peak=peak, counts=counts)
            return
        for end in range(first + 1, len(layer_bytes) + 1):
            held = sum(layer_bytes[first:end])
            walk(end, [*counts, end - first], max(peak, held))

    walk(0, [], 0)
    return best["counts"]
