def stay(unit_bytes, room):
    fits = []
    for i, size in enumerate(unit_bytes):
        keep = [j == i for j in range(len(unit_bytes))]
        if most(unit_bytes, keep) <= room:
            fits.append((size, keep))
    return max(fits)[1]
