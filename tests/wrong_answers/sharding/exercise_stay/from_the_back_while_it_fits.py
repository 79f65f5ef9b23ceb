def stay(unit_bytes, room):
    keep = [False] * len(unit_bytes)
    for i in reversed(range(len(keep))):
        keep[i] = True
        keep[i] = most(unit_bytes, keep) <= room
    return keep
