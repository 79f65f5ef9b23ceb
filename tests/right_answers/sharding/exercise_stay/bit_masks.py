def stay(unit_bytes, room):
    best = (-1, [])
    for mask in range(2 ** len(unit_bytes)):
        whole, fits, keep = 0, True, []
        for i, size in enumerate(unit_bytes):
            fits = fits and whole + size <= room
            keep.append(bool(mask >> i & 1))
            whole += size * keep[-1]
        if fits:
            best = max(best, (whole, keep))
    return best[1]
