def stay(unit_bytes, room):
    choices = itertools.product([False, True], repeat=len(unit_bytes))
    return max((k for k in choices if most(unit_bytes, k) <= room), key=sum)
