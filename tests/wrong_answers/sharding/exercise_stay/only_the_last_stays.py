def stay(unit_bytes, room):
    return [False] * (len(unit_bytes) - 1) + [True]
