def stay(unit_bytes, room):
    return [False] * len(unit_bytes)
