def stay(unit_bytes, room):
    keep = [False] * len(unit_bytes)
    order = sorted(range(len(keep)), key=lambda i: unit_bytes[i], reverse=True)
    for i in order:  # greedy
        keep[i] = True
        keep[i] = most(unit_bytes, keep) <= room
    return keep
